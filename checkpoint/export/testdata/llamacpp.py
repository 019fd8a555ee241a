"""Loads a GGUF file with llama.cpp itself and prints what it computes, as JSON.

  python llamacpp.py FILE [--ids 1,2,3] [--texts cases.jsonl]

--ids: the logits of every position. --texts: the ids of the "text" of every
line, with special tokens recognised and those put around a text that the file
asks for; printed as one list per line of "ids". Needs the PyPI packages
xllamacpp, which has llama.cpp inside, and llama-cpp-py-sync of about the same
week, which has its declarations.
"""
import argparse, json, sys

import xllamacpp.xllamacpp
from llama_cpp_py_sync._cffi_bindings import get_ffi

ffi = get_ffi()
lib = ffi.dlopen(xllamacpp.xllamacpp.__file__)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("file")
    a.add_argument("--ids", default="")
    a.add_argument("--texts", default="")
    a = a.parse_args()
    lib.llama_backend_init()
    mp = lib.llama_model_default_params()
    mp.vocab_only = not a.ids
    model = lib.llama_model_load_from_file(a.file.encode(), mp)
    if model == ffi.NULL:
        sys.exit("llama.cpp does not load " + a.file)
    out = {}
    vocab = lib.llama_model_get_vocab(model)
    if a.ids:
        ids = [int(x) for x in a.ids.split(",")]
        cp = lib.llama_context_default_params()
        cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = 64, 64, 64, 1, 1
        cp.type_k = cp.type_v = 0  # fp32
        cp.flash_attn_type = 0  # off
        ctx = lib.llama_init_from_model(model, cp)
        batch = lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, t in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = t, i, 1, 1
            batch.seq_id[i][0] = 0
        if lib.llama_decode(ctx, batch) != 0:
            sys.exit("llama.cpp does not decode")
        n = lib.llama_vocab_n_tokens(vocab)
        out["vocab"] = n
        out["logits"] = [[float(x) for x in ffi.unpack(lib.llama_get_logits_ith(ctx, i), n)] for i in range(len(ids))]
    if a.texts:
        out["ids"] = []
        buf = ffi.new("llama_token[]", 1 << 16)
        for line in open(a.texts, encoding="utf-8"):
            text = json.loads(line)["text"].encode()
            n = lib.llama_tokenize(vocab, text, len(text), buf, 1 << 16, True, True)
            out["ids"].append(list(ffi.unpack(buf, n)) if n > 0 else [])
    json.dump(out, sys.stdout)


main()
