#!/usr/bin/env python3
"""Encodes a text with the PyPI package `tokenizers` on one thread, as the other side of `mt bench tokenizer`.

    pip install tokenizers
    python3 bench/peers/tokenizers.py --tokenizer DIR/tokenizer.json --text FILE

The text is cut into documents of --document bytes, each to the end of its line, and these are encoded in one call without
offsets and without special tokens. --serve prints one JSON line that begins with {"ready": true and then answers each line
of standard input with one JSON line:

    run K    {"seconds": [...], "tokens": N}    the text K times
    quit     ends, as the end of the input does

Without --serve it does --rounds runs and prints one JSON object. crc32 is that of the ids as 4 bytes each, low byte first.
"""

import argparse
import array
import json
import os
import sys
import time
import zlib

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"


def documents(text, size):
    """text, bytes, in pieces of size bytes and the rest of a line."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + size - 1) + 1 or len(text)
        yield text[start:end].decode()
        start = end


class Encoder:
    """A tokenizer and the documents it encodes."""

    def __init__(self, args):
        import tokenizers

        self.version = tokenizers.__version__
        self.tokenizer = tokenizers.Tokenizer.from_file(args.tokenizer)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        with open(args.text, "rb") as f:
            text = f.read(args.bytes)
        text = text[: text.rfind(b"\n") + 1] or text
        self.size, self.documents = len(text), list(documents(text, args.document))
        encode = getattr(self.tokenizer, "encode_batch_fast", self.tokenizer.encode_batch)
        self.encode = lambda: encode(self.documents, add_special_tokens=False)

    def about(self):
        crc, tokens = 0, 0
        for e in self.encode():
            ids = array.array("I", e.ids)
            if sys.byteorder == "big":
                ids.byteswap()
            crc, tokens = zlib.crc32(ids.tobytes(), crc), tokens + len(ids)
        return {"tokenizers": self.version, "bytes": self.size, "documents": len(self.documents), "tokens": tokens, "crc32": crc}

    def run(self, rounds):
        seconds, tokens = [], 0
        for _ in range(rounds):
            start = time.perf_counter()
            out = self.encode()
            seconds.append(time.perf_counter() - start)
            tokens += sum(len(e) for e in out)
            del out
        return {"seconds": seconds, "tokens": tokens}


def main():
    p = argparse.ArgumentParser(description="Encoding speed of PyPI tokenizers on one thread")
    p.add_argument("--tokenizer", required=True, metavar="FILE", help="tokenizer.json")
    p.add_argument("--text", required=True, metavar="FILE")
    p.add_argument("--bytes", type=int, default=16 << 20, help="how much of the text")
    p.add_argument("--document", type=int, default=16 << 10, help="bytes of a document, about")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--serve", action="store_true", help="answer commands on standard input")
    args = p.parse_args()
    try:
        encoder = Encoder(args)
    except ImportError as e:
        sys.exit(f"tokenizers.py: {e}; pip install tokenizers")
    about = encoder.about()
    if not args.serve:
        print(json.dumps({**about, **encoder.run(args.rounds)}))
        return
    print(json.dumps({"ready": True, **about}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        if len(words) == 2 and words[0] == "run" and words[1].isdigit():
            print(json.dumps(encoder.run(int(words[1]))), flush=True)
        elif words:
            print(json.dumps({"error": f"{line.strip()!r} is none of: run K, quit"}), flush=True)


if __name__ == "__main__":
    if "__file__" in globals():  # this file has the package's name, and would be imported in its place
        sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    main()
