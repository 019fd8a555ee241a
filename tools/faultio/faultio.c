// faultio runs a program, numbers the system calls of all its threads on files below one directory,
// and injects a fault into one of them.
//
//     faultio --dir DIR [--log FILE] [--of all|changes|writes|nothing] [FAULT] -- PROGRAM ARGUMENTS…
//
// --of selects the numbered calls: all calls, calls that change files or directories, calls that
// write bytes, or none. FAULT is one of
//
//     --fail N:ERRNO       call N is not made and returns the error, as EIO
//     --fail-from N:ERRNO  so do all from N on, as on a disk that stays full
//     --short N            call N writes the first half of its bytes
//     --kill-before N      the process is killed in place of call N
//     --kill-amid N        it is killed when half of the bytes of call N are written
//     --kill-after N       it is killed when call N is done
//
// A failing close still closes the file, as on Linux. A sync succeeds without being executed: every
// process reads the written data, and the disk's content matters only in a power cut, which no
// FAULT imitates. FILE gets a line for every numbered call: its number, name, one or two paths, and
// the word fault for an injected fault, separated by tabs. faultio exits like the program: with its
// code, or with 128 plus the number of the signal that ended it. 125 is faultio's own failure; 126
// means that this machine forbids tracing.
//
// It is a tracer (ptrace(2)) because Go makes system calls directly, where no preloaded library
// sees them. A seccomp filter, inherited by the program, stops it only at the calls in calls.h that
// --of numbers. All other calls run at full speed.
//
// It reads the registers of x86-64, and compares paths textually: links within DIR and ".." are not
// resolved.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

#ifndef __x86_64__
#error "faultio knows the registers of x86-64 alone"
#endif

enum { FAILED = 125, FORBIDDEN = 126 };

enum fault { NOTHING, FAIL, FAIL_FROM, SHORT, KILL_BEFORE, KILL_AMID, KILL_AFTER };

static char dir[PATH_MAX];
static FILE *log_file;
static enum kind of = LOOKS; // the lowest kind that is numbered
static enum fault fault;
static long target, error_number;
static long numbered;
static pid_t program; // thread id of its first thread
static pid_t leaving; // the thread traced until its call returns; 0: none

__attribute__((noreturn, format(printf, 2, 3))) static void die(int code, const char *format, ...) {
	va_list args;
	va_start(args, format);
	fputs("faultio: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(code);
}

// install adds a filter that stops this process, and the program that it executes, at calls that
// can be numbered. The kernel itself answers unnumbered syncs.
static void install(void) {
	enum { MOST = 2 * NUM_CALLS + 2 };
	struct sock_filter code[MOST];
	unsigned short n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < NUM_CALLS; i++) {
		bool stops = most_of(&calls[i]) >= of;
		if (!stops && !is_sync(&calls[i]))
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].nr, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, stops ? SECCOMP_RET_TRACE : SECCOMP_RET_ERRNO); // error 0: the call succeeds
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {.len = n, .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		perror("faultio: seccomp");
		_exit(FORBIDDEN);
	}
}

static void start(char **argv) {
	program = fork();
	if (program < 0)
		die(FAILED, "fork: %s", strerror(errno));
	if (program == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
			perror("faultio: ptrace");
			_exit(FORBIDDEN);
		}
		raise(SIGSTOP); // until the tracer has set its options
		install();
		execvp(argv[0], argv);
		perror(argv[0]);
		_exit(FAILED);
	}
	int status;
	if (waitpid(program, &status, 0) != program)
		die(FAILED, "waitpid: %s", strerror(errno));
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status));
	long want = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
	            PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
	if (ptrace(PTRACE_SETOPTIONS, program, NULL, want) != 0)
		die(FORBIDDEN, "ptrace: %s", strerror(errno));
	ptrace(PTRACE_CONT, program, NULL, NULL);
}

// link_target reads a link of /proc; "" if there is none.
static void link_target(char *to, pid_t thread, const char *name, int fd) {
	char at[64];
	if (fd >= 0)
		snprintf(at, sizeof at, "/proc/%d/%s/%d", thread, name, fd);
	else
		snprintf(at, sizeof at, "/proc/%d/%s", thread, name);
	ssize_t n = readlink(at, to, PATH_MAX - 1);
	to[n > 0 ? n : 0] = 0;
}

// directory returns the path of a descriptor; for AT_FDCWD the working directory.
static void directory(char *to, pid_t thread, int fd) {
	if (fd == AT_FDCWD)
		link_target(to, thread, "cwd", -1);
	else
		link_target(to, thread, "fd", fd);
}

// read_string reads a string of the program's memory; "" if there is none.
static void read_string(char *to, pid_t thread, unsigned long long at) {
	char name[64];
	snprintf(name, sizeof name, "/proc/%d/mem", thread);
	int mem = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n = mem < 0 || at == 0 ? 0 : pread(mem, to, PATH_MAX - 1, (off_t)at);
	to[n > 0 ? n : 0] = 0;
	if (mem >= 0)
		close(mem);
}

// path_of returns the path of a call: argument arg, or the path of the descriptor if arg is NONE or
// the string is empty.
static void path_of(char *to, pid_t thread, const unsigned long long *args, int fd, int arg) {
	char words[PATH_MAX] = "", base[PATH_MAX] = "";
	if (arg != NONE)
		read_string(words, thread, args[arg]);
	if (words[0] != '/')
		directory(base, thread, fd == NONE ? AT_FDCWD : (int)args[fd]);
	if (words[0] == 0)
		snprintf(to, 2 * PATH_MAX, "%s", arg != NONE && fd == NONE ? "" : base);
	else
		snprintf(to, 2 * PATH_MAX, "%s%s%s", base, base[0] == 0 ? "" : "/", words);
}

static bool below(const char *path) {
	size_t n = strlen(dir);
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == 0);
}

// print_path writes a path as one word on one line.
static void print_path(const char *path) {
	fputc('\t', log_file);
	for (; *path != 0; path++)
		fputc(*path == '\t' || *path == '\n' ? '?' : *path, log_file);
}

// number reports whether a thread's call is numbered, and logs a numbered call.
static bool number(const struct call *c, pid_t thread, const unsigned long long *args, bool *spoiled) {
	static char first[2 * PATH_MAX], second[2 * PATH_MAX];
	first[0] = second[0] = 0;
	enum kind kind = kind_of(c, args);
	if (kind < of)
		return false;
	path_of(first, thread, args, c->fd, c->path);
	if (c->second != NONE) // with the preceding descriptor, if the call has one
		path_of(second, thread, args, c->fd == NONE ? NONE : c->second - 1, c->second);
	if (!below(first) && !below(second))
		return false;
	numbered++;
	*spoiled = fault != NOTHING && (numbered == target || (fault == FAIL_FROM && numbered > target));
	if (log_file != NULL) {
		fprintf(log_file, "%ld\t%s", numbered, c->name);
		print_path(first);
		print_path(second);
		fputs(*spoiled ? "\tfault\n" : "\t\n", log_file);
		fflush(log_file);
	}
	return true;
}

static void get_regs(pid_t thread, struct user_regs_struct *regs) {
	if (ptrace(PTRACE_GETREGS, thread, NULL, regs) != 0)
		memset(regs, 0, sizeof *regs); // the thread was killed meanwhile
}

// end kills the process of a thread, and the program if it is another process.
static void end(pid_t thread) {
	kill(thread, SIGKILL);
	kill(program, SIGKILL);
}

// answer sets the result of a call that is not executed.
static void answer(pid_t thread, struct user_regs_struct *regs, long result) {
	regs->orig_rax = (unsigned long long)-1; // no call
	regs->rax = (unsigned long long)result;
	ptrace(PTRACE_SETREGS, thread, NULL, regs);
}

// entering handles the stop before a call. It returns how the thread continues.
static int entering(pid_t thread) {
	struct user_regs_struct regs;
	get_regs(thread, &regs);
	unsigned long long args[] = {regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9};
	const struct call *c = NULL;
	for (int i = 0; i < NUM_CALLS && c == NULL; i++)
		if (calls[i].nr == (long)regs.orig_rax)
			c = &calls[i];
	bool spoiled = false;
	if (c == NULL)
		return PTRACE_CONT;
	if (!number(c, thread, args, &spoiled) || !spoiled) {
		if (is_sync(c))
			answer(thread, &regs, 0);
		return PTRACE_CONT;
	}
	switch (fault) {
	case KILL_BEFORE:
		end(thread);
		return PTRACE_CONT;
	case SHORT:
	case KILL_AMID:
		if (c->bytes != NONE && args[c->bytes] > 1) {
			unsigned long long *count = c->bytes == 2 ? &regs.rdx : c->bytes == 3 ? &regs.r10 : &regs.r8;
			*count /= 2;
			ptrace(PTRACE_SETREGS, thread, NULL, &regs);
		}
		if (fault == SHORT)
			return PTRACE_CONT;
		break;
	case FAIL:
	case FAIL_FROM:
		if (c->nr != SYS_close) {
			answer(thread, &regs, -error_number);
			return PTRACE_CONT;
		}
		break;
	default:
		break;
	}
	leaving = thread;
	return PTRACE_SYSCALL;
}

// left handles the stop after the call of the traced thread.
static void left(pid_t thread) {
	leaving = 0;
	if (fault == KILL_AMID || fault == KILL_AFTER) {
		end(thread);
		return;
	}
	struct user_regs_struct regs;
	get_regs(thread, &regs);
	regs.rax = (unsigned long long)-error_number;
	ptrace(PTRACE_SETREGS, thread, NULL, &regs);
}

// stopped continues a thread after a stop.
static void stopped(pid_t thread, int status) {
	int sig = WSTOPSIG(status), how = PTRACE_CONT;
	if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
		how = entering(thread);
		sig = 0;
	} else if (sig == (SIGTRAP | 0x80)) {
		if (thread == leaving)
			left(thread);
		sig = 0;
	} else if (status >> 16 != 0 || sig == SIGSTOP) { // a new thread begins with SIGSTOP
		sig = 0;
	}
	if (thread == leaving)
		how = PTRACE_SYSCALL; // a signal arrived in between
	ptrace(how, thread, NULL, (long)sig);
}

// follow traces until the program ends and returns its exit code.
static int follow(void) {
	for (;;) {
		int status;
		pid_t thread = waitpid(-1, &status, __WALL);
		if (thread < 0 && errno == EINTR)
			continue;
		if (thread < 0)
			die(FAILED, "waitpid: %s", strerror(errno));
		if (WIFSTOPPED(status))
			stopped(thread, status);
		else if (thread == program)
			return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
}

static long number_in(const char *text, char **rest) {
	errno = 0;
	long n = strtol(text, rest, 10);
	if (*rest == text || n < 1 || errno != 0)
		die(FAILED, "%s: want the number of a call, from 1 on", text);
	return n;
}

// parse_fault parses the value of a fault option.
static void parse_fault(enum fault f, const char *text) {
	static const struct {
		const char *name;
		long number;
	} errors[] = {{"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EACCES", EACCES}, {"EROFS", EROFS}, {"ESTALE", ESTALE},
	              {"EMFILE", EMFILE}, {"EINTR", EINTR}};
	char *rest;
	if (fault != NOTHING)
		die(FAILED, "one fault at a time");
	fault = f;
	target = number_in(text, &rest);
	if (f == FAIL || f == FAIL_FROM)
		for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
			if (rest[0] == ':' && strcmp(rest + 1, errors[i].name) == 0) {
				error_number = errors[i].number;
				rest = "";
			}
	if (*rest != 0 || ((f == FAIL || f == FAIL_FROM) && error_number == 0))
		die(FAILED, "%s: want %s", text, f == FAIL || f == FAIL_FROM ? "a number and an error, such as 17:EIO" : "a number");
}

static void parse_option(const char *name, const char *value) {
	static const char *faults[] = {[FAIL] = "--fail", [FAIL_FROM] = "--fail-from", [SHORT] = "--short", [KILL_BEFORE] = "--kill-before", [KILL_AMID] = "--kill-amid",
	                               [KILL_AFTER] = "--kill-after"};
	static const char *kinds[] = {[LOOKS] = "all", [CHANGES] = "changes", [WRITES] = "writes", [BEYOND] = "nothing"};
	for (int f = FAIL; f <= KILL_AFTER; f++)
		if (strcmp(name, faults[f]) == 0) {
			parse_fault((enum fault)f, value);
			return;
		}
	if (strcmp(name, "--dir") == 0) {
		if (realpath(value, dir) == NULL)
			die(FAILED, "--dir %s: %s", value, strerror(errno));
		return;
	}
	if (strcmp(name, "--log") == 0) {
		if ((log_file = fopen(value, "we")) == NULL)
			die(FAILED, "--log %s: %s", value, strerror(errno));
		return;
	}
	for (int k = LOOKS; k <= BEYOND && strcmp(name, "--of") == 0; k++)
		if (strcmp(value, kinds[k]) == 0) {
			of = (enum kind)k;
			return;
		}
	die(FAILED, "%s %s: unknown", name, value);
}

int main(int argc, char **argv) {
	int i = 1;
	for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2)
		parse_option(argv[i], argv[i + 1]);
	if (i + 1 >= argc || dir[0] == 0)
		die(FAILED, "usage: faultio --dir DIR [--log FILE] [--of all|changes|writes|nothing] [--fail N:ERRNO|--fail-from N:ERRNO|--short N|--kill-before N|--kill-amid N|--kill-after N] -- PROGRAM ARGUMENTS...");
	start(argv + i + 1);
	signal(SIGINT, SIG_IGN); // for the program
	signal(SIGTERM, SIG_IGN);
	return follow();
}
