"""Short templates, by what they try."""

VARIABLES = {
    "s": "Hello World", "t": "  two  words \n", "e": "", "u": "Größe ÀÉ 你好🙂 ß", "n": 7, "z": 0, "neg": -3, "f": 2.5, "big": 12345678901234567890,
    "yes": True, "no": False, "nil": None, "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "empty": [], "nested": [[1, 2], [3, [4, 5]]],
    "d": {"b": 1, "a": "x", "items": 3, "C": None}, "ed": {}, "mixed": [1, "1", 1.0, True, None, [1], {"k": 1}],
    "rows": [{"n": "x", "v": 3, "g": {"h": 1}}, {"n": "Y", "v": 1, "g": {"h": 2}}, {"n": "z", "v": 2, "g": {"h": 1}}, {"n": "w"}],
    "html": "<a href='x'>\"&</a>", "lines": "one\ntwo\n\nthree\r\nfour", "tree": [{"k": 1, "c": [{"k": 2, "c": []}, {"k": 3, "c": [{"k": 4}]}]}, {"k": 5}],
    "deep": {"a": {"b": {"c": [10, 20, {"x": "y"}]}}}, "quote": "it's \"q\" \\ \t\x00\x7f\u00ad\u200b", "messages": [{"role": "user", "content": "hi"}],
}


def each(expressions):
    return ["{{ %s }}" % line for line in expressions.strip().split("\n") if line.strip()]


SNIPPETS = {
    "literals": each(r"""
1
-1
1_000
0x1f
0b101
0o17
0
00
1.5
1e3
1.5e-7
1_0.5
1e16
1e15
123456789012345678901234567890
0.1 + 0.2
1e400
-1e400
3.0
1.0e-5
0.0001
'a' "b" 'c'
"\n\t\\\'\"\x41\u00e9\U0001F642\101\q\a"
'a
b'
true, True, false, False, none, None
[1, 2.0, 'x', none, true,]
[]
()
(1,)
(1, 2)
1, 2
1,
{}
{'a': 1, "b": [1], 3: 4, none: 5, (1, 2): 6, 1.5: 7, true: 8}
{'a': 1, 'a': 2}
{1: 'a', true: 'b', 1.0: 'c'}
{'a': 1,}
{[1]: 2}
{{}: 1}
'unterminated
"bad \x4"
"\ud83d"
"a" "b
1 2
a b
1.
.5
1.x
01
1__0
$
a ? b
é
"""),
    "operators": each(r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 // -2, 7.5 // 2, -7.5 // 2
7 % 3, -7 % 3, 7 % -3, 7.5 % 2, -7.5 % 2, 7 % 2.5
2 ** 10, 2 ** -1, 2 ** 0.5, -2 ** 2, 2 ** 3 ** 2, 2 ** 100
1 / 2, 4 / 2, 1 / 3
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
'a' + 'b', 'a' * 3, 3 * 'a', 'a' * 0, 'a' * -1, [1] * 2, [1] + [2], (1,) + (2,), (1, 2) * 2
'a' + 1
1 + 'a'
'a' - 'b'
[1] + (2,)
none + 1
{} + {}
1 ~ 2 ~ 'x' ~ none ~ [1] ~ 1.0 ~ missing
'a' ~ 1 + 2
1 ~ 2 * 3
-n, +n, - -n, -(1 + 2), -f
-'a'
+'a'
-none
not 1, not 0, not not 1, not n == 7, not n in l
1 == 1.0, 1 == '1', 1 == true, none == false, [1, 2] == [1, 2], (1,) == [1], {'a': 1} == {'a': 1.0}, 'a' != 'b'
1 < 2 < 3, 1 < 3 < 2, 1 < 2 == 2, 3 > 2 >= 2 != 1
1 < 'a'
none < 1
'a' < 'b', 'B' < 'a', [1, 2] < [1, 3], [1] < [1, 0], (1, 'a') < (1, 'b')
[1] < (1,)
{} < {}
1 in [1, 2], 'b' in 'abc', 'b' not in 'abc', 'a' in d, 'zz' in d, 3 in (1, 2), '' in 'x', 1.0 in l, [1, 2] in nested
1 in 'abc'
1 in 5
'a' in none
'a' in missing
1 in missing.x
true and 'x', false and 'x', '' or 'y', 0 or none, 1 or 2, none and missing.x, true or missing.x
1 if true else 2, 1 if false else 2, 1 if false, (1 if false) is defined
'a' if n > 5 else 'b' if n > 3 else 'c'
(1 if 0 else 2) + 1
1 if 0 else 2 if 0 else 3
(x if x is defined else 'd')
true + true, true * 3, -true, true / 2, 5 % true
1e308 * 10, -1e308 * 10
9223372036854775807 + 1, -9223372036854775808 - 1, 9223372036854775807 * 9223372036854775807, big + 1, big % 10, big // 10, -big, big > 1, big == big
big / 2
3 == 3.0 == true
1 <= 1 <= 1
'%s is %d' % ('x', 3), '%s' % 'x', '%5.2f|%-5s|%05d|%+d|%x|%o|%e|%g|%%|%r|%c' % (3.14159, 'ab', 42, 7, 255, 8, 12345.678, 0.0001, 'q', 65)
'%(a)s-%(b)05.1f' % {'a': 'x', 'b': 2}
'%d' % 'x'
'%s %s' % 'x'
'%s' % ('a', 'b')
'%d' % 3.99, '%i' % true, '%s' % none, '%s' % [1, 2], '%s' % (('a', 'b'),)
'%*d' % (5, 42), '%.3s' % 'abcdef', '%-8s|' % 'é', '%#x %#o' % (255, 8), '% d' % 5, '%.0f' % 2.5
'%5%' % ()
'%y' % 1
'%(x)s' % d
'%g %g %g %G' % (1e20, 100000.0, 1234567.0, 1e-10)
'abc' % ()
'abc' % 1
'abc' % {}
'abc' % []
1 +
* 2
1 ** ** 2
(1
[1
{1
1)
1]
not
a is
a is not
a |
a.
a[
a[]
f(
f(a=)
f(a=1, 2)
f(*a, *b)
f(**a, b=1)
"""),
    "access": each(r"""
d.a, d['a'], d.b, d.get('a'), d.get('q'), d.get('q', 5), d['q'], d.q
d.items is callable
d['items']
d.items() | list, d.keys() | list, d.values() | list
d.items(), d.keys(), d.values()
d.keys()[0]
d.q.r
d['q']['r']
missing
missing.x
missing['x']
missing()
missing + 1
missing ~ 'x'
missing == missing2, missing == none, missing != 1
missing < 1
missing | length, missing | list, missing | upper, missing | trim, missing | default('d'), missing | join
missing | abs
missing | tojson
missing | first, missing | last
missing | string, missing | items | list, missing is iterable, missing is sequence, missing is mapping, missing is string
missing[0:1]
-missing
not missing
[missing], {'a': missing}
none.x, none['x'], none[0]
none.x.y
n.x, n[0], f.x, true.x
s[0], s[-1], s[50], s[1:3], s[:-1], s[::-1], s[::2], s[-3:], s[10:2:-1], s[5:1], s[-100:100]
u[0], u[2], u[-1], u[1:4], u[::-1], u | length
l[0], l[-1], l[9], l[1:], l[::-1], l[:1], l[0:3:2], l[5:], l[-2:]
l[::0]
l['x'], l.x, l.0, l.9, nested.1.1.0, l[true], l[1.0], l[none]
l['a':]
l[1.5:]
d[1:2]
n[1:2]
nil[1:]
(1, 2, 3)[1:], (1, 2, 3)[-1], (1, 2, 3)[::-1]
range(5), range(5)[1], range(5)[-1], range(5)[1:3], range(10, 0, -3) | list, range(0), range(2, 4) | list, range(5) | length, 3 in range(5), range(5)[::-1] | list
range(5, 1, 0)
range('a')
range(1000001)
range()
range(1, 2, 3, 4)
deep.a.b.c[2].x, deep['a']['b']['c'][0], deep.a.b.q, deep.get('a').get('b')
deep.q.b
d.pop('a')
l.append(1)
l.append
l.sort()
d.update({})
d.clear
s.__class__
s.__class__.__mro__
d.__class__
''.__class__ is defined
d._x, s._x
s.upper is callable
s.upper() is string
s.nope
s.nope()
s()
5()
d()
rows[0].g.h, rows[3].g, rows[-1].n
rows[3].g.h
d | attr('items') is callable, d | attr('b'), s | attr('upper') is callable
{'a': {'b': 1}}.a.b, [1, 2][0], 'abc'[1], 'abc'.upper(), (1, 2)[0], 5 .x
d['a', 'b']
{(1, 2): 'x'}[1, 2]
dict(a=1, b=2), dict({'a': 1}, c=3), dict([('x', 1), ('y', 2)]), dict(), dict(d, b=9)
dict(1)
dict([1])
dict([(1, 2, 3)])
namespace(a=1).a, namespace(a=1).b, namespace({'x': 2}).x, namespace(a=1), namespace() is defined
namespace(_a=1)
cycler(1, 2).next(), cycler('a').current
joiner('-')()
loop
loop.index
strftime_now('%d %b %Y'), strftime_now('%Y-%m-%d %H:%M:%S'), strftime_now('%A %B %-d %j %I %p %y %% %e %U %W %V %u %w %f %D %T %F %a %-m %-H %c %x %X %R %C %G')
strftime_now()
raise_exception('no')
raise_exception('a' ~ n)
"""),
    "strings": each(r"""
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.capitalize(), 'ΑΣ ΣΑΣ'.lower(), 'ﬁx ŉ ǆ'.upper(), 'ﬁx ǆa'.title(), 'İI'.lower(), "they're bill's".title(), 'x1y'.title()
t.strip(), t.lstrip(), t.rstrip(), 'xxaxx'.strip('x'), 'abcba'.strip('ab'), 'xya'.lstrip('xy'), 'ayx'.rstrip('xy'), '\u00a0\u2003a\u3000'.strip(), 'a\x1c\x85'.strip(), t.strip(none), 'éaé'.strip('é')
'a b  c'.split(), 'a b  c'.split(' '), 'a,b,c'.split(','), 'a,b,c'.split(',', 1), 'a b c d'.split(none, 2), ''.split(), ''.split(','), ' a b '.split(none, 1), 'a--b--c'.split('--', maxsplit=1), 'abc'.split('x'), 'a b'.split(maxsplit=0), 'aXbX'.split('X')
'a,b,c'.rsplit(',', 1), 'a b c d'.rsplit(none, 2), ' a b '.rsplit(none, 1), 'a,b'.rsplit(','), 'aaa'.rsplit('a', 1), ' a  b  c '.rsplit(none, 1), 'a-b-c-d'.rsplit('-', 2)
'a'.split('')
'a'.split(1)
s.split()[-1].lstrip(), s.split('o')[-1], s.split('</think>')[-1].lstrip('\n')
lines.splitlines(), lines.splitlines(true), ''.splitlines(), 'a\n'.splitlines(), 'a\x0bb\x0cc\x1cd\x85e\u2028f'.splitlines(), 'a\r\nb\rc'.splitlines(keepends=true)
s.startswith('He'), s.startswith(('x', 'H')), s.startswith('e', 1), s.endswith('ld'), s.endswith(('x', 'd')), s.endswith('o', 0, 5), s.startswith(''), s.startswith('', 99), s.startswith('l', -2), s.endswith((), 1)
s.startswith(1)
s.startswith(['H'])
s.startswith()
s.replace('o', '0'), s.replace('o', '0', 1), s.replace('', '-'), s.replace('l', ''), s.replace('l', 'L', 0), s.replace('x', 'y'), s.replace('l', 'L', -1), 'aaa'.replace('aa', 'b')
s.replace('a')
s.replace(1, 2)
s.find('o'), s.find('z'), s.rfind('o'), s.find('o', 5), s.find('o', 5, 6), s.index('W'), s.rindex('l'), u.find('好'), s.count('l'), s.count(''), s.count('l', 4), 'aaaa'.count('aa'), s.find('', 20), s.find('', 11), s.rfind('l', 0, 4), s.find('H', -100), u.rfind('ß')
s.index('z')
s.rindex('z')
'-'.join(['a', 'b']), ''.join([]), ','.join('abc'), ','.join(words), ', '.join(d), ','.join(d.keys())
','.join([1, 2])
','.join(5)
'{} {}'.format(1, 'a'), '{1}{0}'.format('a', 'b'), '{x}'.format(x=5), '{0.b} {0[a]}'.format(d), '{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c'), '{:05d} {:,} {:x} {:.2f} {:e} {:%}'.format(42, 1234567, 255, 3.14159, 1000.0, 0.25), '{!r} {!s}'.format('a', 'b'), '{{}}'.format(), '{:{}}'.format('a', 5), '{:*^9}'.format('x'), '{:+d} {: d}'.format(5, 5), '{:08.3f}'.format(-3.14159), '{:.3}'.format('abcdef'), '{:.3}'.format(3.14159), '{}'.format(none), '{:b} {:#x} {:o} {:c}'.format(5, 255, 8, 65), '{:,.2f}'.format(1234567.891), '{:g} {:g}'.format(1e-5, 123456789.0), '{:s}'.format('x'), '{:=+6d}'.format(42), '{:_}'.format(1234567), '{0}{0}'.format(1), '{!a}'.format('é')
'{} {}'.format(1)
'{x}'.format()
'{'.format()
'}'.format()
'{:d}'.format('a')
'{:s}'.format(1)
'{:.2d}'.format(1)
'{0}{}'.format(1, 2)
'{:q}'.format(1)
'{0.__class__}'.format(1)
'{a[b]}'.format(a={'b': 1}), '{a[0]}'.format(a=[7]), '{a.b}'.format(a=namespace(b=4))
'{a}'.format_map({'a': 1})
'abc'.removeprefix('a'), 'abc'.removeprefix('x'), 'abc'.removesuffix('c'), 'abc'.removesuffix(''), 'aab'.removeprefix('a')
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-'), 'abc'.rpartition('-')
'abc'.partition('')
'abc'.center(9), 'abc'.center(8, '*'), 'ab'.center(5, '-'), 'abc'.ljust(5) ~ '|', 'abc'.rjust(5, '.'), '42'.zfill(5), '-42'.zfill(5), 'abc'.center(2), '+1'.zfill(4)
'abc'.center(9, 'xy')
'a\tb'.expandtabs(), 'a\tb'.expandtabs(4), 'a\nb\tc'.expandtabs(2)
'abc'.isalpha(), 'ab1'.isalpha(), 'ab1'.isalnum(), '12'.isdigit(), '12'.isdecimal(), '²'.isdigit(), '²'.isdecimal(), '½'.isnumeric(), ' '.isspace(), ''.isspace(), 'AB'.isupper(), 'aB'.isupper(), 'ab'.islower(), 'Ab Cd'.istitle(), 'ab cd'.istitle(), 'a_1'.isidentifier(), '1a'.isidentifier(), 'é'.isascii(), 'a'.isascii(), 'a\n'.isprintable(), ''.isprintable(), '12'.isupper(), 'é'.isalpha(), '你'.isalpha(), '你'.isupper()
'Straße'.casefold()
s.upper(1)
s.lower(x=1)
quote, [quote], quote | tojson, quote | length
['it\'s', 'a"b', 'a\'b"c', 'é', '\u200b', '\n', '🙂', '\u0378']
l.index(1), l.count(3), l.copy(), (1, 2, 1).count(1), (1, 2).index(2), range(5).index(3)
l.index(99)
d.copy(), d.get('a', 'b')
d.get()
d.get([1])
"""),
    "filters": each(r"""
t | trim, 'xax' | trim('x'), 5 | trim, none | trim, ['a'] | trim
s | upper, s | lower, s | title, s | capitalize, 5 | upper, 'a-b (c d' | title, "they're here" | title, 'ΑΣ' | lower, u | title, u | capitalize, none | upper, 'a<b[c{d' | title, 'ß' | capitalize
s | length, l | length, d | length, e | count, u | length, d.keys() | length
5 | length
none | length
words | map('upper') | length
l | join, l | join(', '), l | join('-') | length, words | join('|'), d | join(','), 'abc' | join('-'), rows | join(',', attribute='n'), rows | join(',', 'n'), [1, none, 'a', 2.0] | join('/'), [] | join('x'), l | join(1), [[1], 'a'] | join
5 | join
missing | default('x'), nil | default('x'), nil | default('x', true), '' | d('y', true), missing | d, no | default('f', boolean=true)
missing.x | default('y')
missing | int
missing | float
d.q | default([]) | length, d.q | default(none) is none
missing | default(1, 2, 3)
l | first, l | last, s | first, s | last, [] | first, [] | last, '' | first, d | first, d | last, (1, 2) | last, range(3) | last, d.keys() | first, d.items() | last
5 | first
l | map('string') | last
l | list, s | list, d | list, 'äb' | list, d.items() | list, range(3) | list, (1, 2) | list
5 | list
rows | map(attribute='n') | list, rows | map(attribute='v') | list, rows | map(attribute='v', default=0) | list, rows | map(attribute='g.h', default='-') | list, words | map('upper') | list, l | map('string') | join(','), ['1', '2'] | map('int') | sum, nested | map('length') | list, nested | map(attribute=0) | list, nested | map('first') | list, ['a b', 'c d'] | map('replace', ' ', '_') | list, ['x'] | map('default', 'y') | list, [' a '] | map('trim') | first
l | map('nope') | list
l | map('nope')  is iterable
l | map() | list
l | map(attribute='x', nope=1) | list
rows | map(attribute='g.h.i') | list
[] | map('nope') | list, none | map('upper') | list, missing | map('upper') | list
5 | map('upper') | list
l | select('odd') | list, l | select('gt', 1) | list, l | reject('even') | list, mixed | select | list, mixed | reject | list, words | select('in', ['a', 'b']) | list, [1, none, 2] | reject('none') | list, mixed | select('string') | list, l | select('divisibleby', 3) | list, mixed | select('mapping') | list, words | select('equalto', 'a') | list, [1, 2, 3] | select('!=', 2) | list
rows | selectattr('v') | list, rows[:3] | selectattr('v', 'gt', 1) | map(attribute='n') | list, rows | selectattr('n', 'equalto', 'x') | list | length, rows | rejectattr('v', 'defined') | map(attribute='n') | list, rows | selectattr('v', 'undefined') | list, rows | rejectattr('v') | list, rows[:3] | selectattr('g.h', 'eq', 1) | map(attribute='n') | join, messages | selectattr('role', '==', 'user') | list | length
rows | selectattr('v', 'gt', 1) | map(attribute='nope') | list
rows | selectattr('g.h', 'gt', 1) | list
rows | selectattr() | list
l | select('nope') | list
(l | select('odd'))[0], (l | select('odd')) | first, (l | select('odd')).x
l | select('odd') is sequence, l | select('odd') is iterable, (l | select('odd')) is mapping, [l | select('odd')] | length
s | replace('o', '0'), s | replace('o', '0', 1), s | replace('l', ''), 5 | replace(5, 6), none | replace('N', 'M'), s | replace('o', none), s | replace('', '-', 3), s | replace('l', 'L', count=2)
s | replace('a')
l | sort, words | sort, words | sort(case_sensitive=true), l | sort(reverse=true), l | sort(true), rows[:3] | sort(attribute='v') | map(attribute='n') | list, rows[:3] | sort(attribute='g.h,v') | map(attribute='n') | list, rows[:3] | sort(attribute='n', case_sensitive=true) | map(attribute='n') | list, 'hello' | sort, d.keys() | sort, nested | sort(attribute=0), [(1, 'b'), (1, 'a')] | sort, [1, true, 0.5] | sort, [2, 1, 2] | sort(reverse=true)
mixed | sort
rows | sort(attribute='v') | list
[none, 1] | sort
[] | sort
words | unique | list, [1, 1.0, true, 2] | unique | list, rows[:3] | unique(attribute='g.h') | map(attribute='n') | list, words | unique(true) | list, ['a', 'A'] | unique(case_sensitive=true) | list
nested | unique | list
l | sum, rows[:3] | sum('v'), rows[:3] | sum(attribute='v', start=10), [] | sum, [1.5, 2] | sum, [[1], [2]] | sum(start=[]), [true, true] | sum
words | sum
l | min, l | max, words | min, words | max, words | max(case_sensitive=true), rows[:3] | max(attribute='v'), rows[:3] | min(attribute='v'), [] | min, 'hello' | max, [[2], [1]] | min
mixed | max
'5' | int, '5.7' | int, 'x' | int, 'x' | int(9), 5.9 | int, -5.9 | int, ' 7 ' | int, '0x1f' | int(base=16), '1f' | int(0, 16), '0b11' | int(0, 2), '1_000' | int, none | int, true | int, [] | int(3), '-3' | int, '1e3' | int, '' | int, '0o17' | int(base=8), '99999999999999999999' | int, 'inf' | int(5), '٣' | int, '5' | int('d'), 1e20 | int, '0x1f' | int
inf | int
'5.5' | float, 'x' | float, 'x' | float(1.5), 5 | float, none | float, true | float, ' 1e3 ' | float, 'inf' | float, '-nan' | float, 'Infinity' | float, '1_0.5' | float, '.5' | float, '5.' | float, '1e400' | float, '0x10' | float
5 | string, none | string, true | string, [1, 'a'] | string, 1.0 | string, d | string, 'x' | string, (1,) | string, missing | string | length
d | items | list, d | dictsort, d | dictsort(reverse=true), {'b': 2, 'a': 3} | dictsort(by='value'), {'B': 1, 'a': 2} | dictsort(true), {'B': 1, 'a': 2} | dictsort, {'b': 'Z', 'a': 'y'} | dictsort(false, 'value')
d | dictsort(by='value')
d | dictsort(by='x')
l | items | list
l | dictsort
lines | indent, lines | indent(2), lines | indent(2, true), lines | indent(2, true, true), lines | indent(width=1, blank=true), lines | indent('> '), 'a' | indent, '' | indent, '\n' | indent(first=true), 'a\n\nb' | indent(0)
5 | indent
l | reverse | list, s | reverse, d | reverse | list, (1, 2) | reverse | list, u | reverse, range(3) | reverse | list, words | map('upper') | reverse | list, [] | reverse | list
5 | reverse
(l | reverse) is string, (l | reverse) is sequence, (l | reverse) | first
l | reverse | length
2.5 | round, 3.5 | round, 2.567 | round(2), 2.567 | round(2, 'floor'), 2.561 | round(2, 'ceil'), 25 | round, 1234 | round(-2), 2.5 | round(0, 'ceil'), 2.675 | round(2), 1e20 | round, -2.5 | round, 1250 | round(-2), 1350 | round(-2), 1234.5 | round(-2), 0.5 | round, 1.5 | round, true | round, 5 | round(1, 'floor'), -0.4 | round, 2.5 | round | int
'x' | round
2.5 | round(0, 'up')
-5 | abs, 5.5 | abs, -0.0 | abs, true | abs, -big | abs
'x' | abs
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3] | batch(2, 'x') | list, [] | batch(2) | list, 'abcde' | batch(2) | list, [1, 2] | batch(5, 0) | list, [1, 2] | batch(2, 0) | list
[1, 2, 3, 4, 5] | slice(2) | list, [1, 2, 3, 4, 5] | slice(3, 'x') | list, [] | slice(2) | list, [1] | slice(3) | list, 'abcd' | slice(2) | list, [1, 2] | slice(-1) | list
[1] | slice(0) | list
[1] | batch | list
rows[:3] | groupby('g.h') | list, rows[:3] | groupby('n') | map(attribute='grouper') | list, rows | groupby('v', default=0) | map('first') | list, rows | groupby('g.h', default=9) | map(attribute='list') | map('length') | list, ['b', 'A', 'a'] | map('upper') | list, [{'c': 'CA'}, {'c': 'ny'}, {'c': 'ca'}] | groupby('c') | list, [{'c': 'CA'}, {'c': 'ca'}] | groupby('c', case_sensitive=true) | list
rows | groupby('v') | list
(rows[:1] | groupby('n') | first).grouper, (rows[:1] | groupby('n') | first)[0], rows[:1] | groupby('n')
s | wordcount, '' | wordcount, u | wordcount, 'a-b c_d' | wordcount, 5 | wordcount
html | escape, html | e, html | safe, html | escape | escape, html | safe | escape, 5 | escape, html | forceescape, none | e, html | safe | forceescape
(html | safe) + '<', '<' + (html | safe), (html | safe) ~ '<', ('<b>' | safe) | upper, ('<b>' | safe) | length, ('<b>' | safe).replace('<', '&'), ('%s' | safe) % '<', ('%s' | safe) % ('<' | safe), ('{}' | safe).format('<'), ('<' | safe).join(['<', 'a']), [html | safe], ('<' | safe) == '<', ('<' | safe) in ['<'], ('a<' | safe)[1], ('a b' | safe).split(), ('<' | safe) | tojson, ('<' | safe) is string, ('<' | safe) is escaped, '<' is escaped, ('<' | safe) * 2, ('  < ' | safe) | trim, ('<' | safe) | string, (('a' | safe) | replace('a', '<')), ['<' | safe, '<'] | join, ('a' | safe) + ('b' | safe), ('<' | safe)[::-1], '%s' % ('<' | safe), ('a' | safe).upper() is escaped, ('<' | safe) ~ '' is escaped
'%s %s' | format('a', 1), '%(x)s' | format(x=1), '%.2f' | format(1), '%d%%' | format(5)
'%s' | format
'%s' | format(1, x=2)
l | tojson, d | tojson, s | tojson, u | tojson, none | tojson, true | tojson, 1.0 | tojson, 1e20 | tojson, 1e16 | tojson, -0.0 | tojson, big | tojson, html | tojson, '\u2028\x7f/\b\f' | tojson, [] | tojson, {} | tojson, (1, 2) | tojson, deep | tojson, nested | tojson, {1: 2, none: 3, true: 4, 1.5: 5} | tojson, [[], {}, [{}]] | tojson(indent=2)
d | tojson(indent=2), deep | tojson(indent=4), nested | tojson(indent=0), deep | tojson(indent='--'), d | tojson(sort_keys=true), u | tojson(ensure_ascii=true), d | tojson(separators=(',', ':')), d | tojson(indent=2, separators=(',', ': ')), d | tojson(false, 1, none, true), [1] | tojson(indent=-1), deep | tojson(separators=[';', '='], indent=1), [1, 2] | tojson(indent=true)
range(3) | tojson
namespace(a=1) | tojson
l | map('string') | tojson
{(1, 2): 3} | tojson
d.items() | tojson
d | tojson(nope=1)
d | tojson(sort_keys=true, indent=1)
{1: 1, 'a': 2} | tojson(sort_keys=true)
s | truncate(5), s | truncate(5, true), s | truncate(5, true, '', 0), s | truncate(8, false, '..', 0), 'short' | truncate(3), s | truncate(3, leeway=0), u | truncate(6, leeway=1)
s | truncate(2)
s | center(20), 'a' | center(4) ~ '|'
l | nope
s | upper(1)
s | join | upper | lower | title
s|upper|list|first
[3,1]|sort|first
-1|abs
-(1)|abs
2**2|abs
"a"|upper ~ "b"|upper
1 + 2|string|length
s | attr('nope') is undefined
d | length + 1, not d | length, d | length > 2
""" + "\n" + r"""
x | default('a') if x is defined else 'b' | upper
['a', 'b'] | map('upper') | join(', ') | replace('A', 'Z')
"""),
    "tests": each(r"""
n is defined, missing is defined, missing is undefined, d.q is defined, nil is defined, missing is not defined, d.a is defined and d.b is defined
nil is none, n is none, missing is none, n is not none
s is string, n is string, n is number, f is number, yes is number, s is number, n is integer, yes is integer, f is integer, big is integer, f is float, n is float, yes is boolean, n is boolean, yes is true, yes is false, no is false, 1 is true
d is mapping, l is mapping, d is sequence, l is sequence, s is sequence, n is sequence, nil is sequence, (1,) is sequence, d.items() is sequence, range(3) is sequence, missing is sequence
d is iterable, l is iterable, s is iterable, n is iterable, nil is iterable, range(2) is iterable, yes is iterable
3 is odd, 3 is even, 4 is even, -3 is odd, 3.0 is odd, 9 is divisibleby 3, 9 is divisibleby(2), 0 is even, true is odd
'a' is odd
3 is divisibleby 0
3 is divisibleby
n is eq 7, n is equalto(7), n is ne 7, n is lt 8, n is gt 8, n is le 7, n is ge 8, n is lessthan 9, n is greaterthan 3, n == 7 is true
'a' is lt 1
1 is in [1, 2], 'a' is in 'abc', 3 is not in l, 'zz' is in d
1 is in 5
n is sameas n, nil is sameas none, true is sameas true, 1 is sameas true, d is sameas d, l is sameas l, [] is sameas [], 'a' is sameas 'a', d is sameas {'b': 1}
s.upper is callable, s is callable, range is callable, missing is callable, dict is callable
'upper' is filter, 'nope' is filter, 'odd' is test, 'nope' is test, 'tojson' is filter, 'generation' is filter
'ab' is lower, 'AB' is upper, 'aB' is upper, 5 is lower, '' is upper
n is nope
n is defined is true
n is not defined or true
s is string and n is integer or false
n is number and not n is string
n is in(l)
n is eq n
not n is defined
'a' is string ~ 'x'
[] is defined [0]
n is eq -7
n is defined == true
n is lt 5 if yes else 3
"""),
    "statements": [
        "{% if n %}a{% elif z %}b{% else %}c{% endif %}",
        "{% if z %}a{% elif z %}b{% elif n %}x{% else %}c{% endif %}",
        "{% if z %}a{% endif %}",
        "{% if 1, 2 %}t{% endif %}{% if () %}t{% else %}f{% endif %}",
        "{% if n %}a",
        "{% if %}a{% endif %}",
        "{% endif %}",
        "{% if n %}a{% endfor %}",
        "{% nope %}",
        "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ x }};{% endfor %}",
        "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
        "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ (loop.previtem.x is defined) if not loop.first }};{% endfor %}",
        "{% for x in l %}{{ loop.previtem.x }}{% endfor %}",
        "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
        "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in l %}{{ loop }}{{ loop.nope }}{% endfor %}",
        "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ x }}{{ loop.last }},{% else %}none{% endfor %}",
        "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
        "{% for x in empty %}{{ x }}{% else %}{{ x is defined }}none{% endfor %}",
        "{% for x in l | select('odd') %}{{ loop.length }}{{ x }}{{ loop.last }}{% endfor %}",
        "{% for x in l | map('string') %}{{ x }}{{ loop.revindex }}{{ loop.nextitem }}{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
        "{% for k, v in d | items %}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}",
        "{% for k in d %}{{ k }}{% endfor %}",
        "{% for a, (b, c) in [(1, (2, 3)), (4, 'xy')] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
        "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
        "{% for a, b in [1] %}{% endfor %}",
        "{% for x in 5 %}{% endfor %}",
        "{% for x in none %}{% endfor %}",
        "{% for x in missing %}a{% else %}b{% endfor %}",
        "{% for x in missing.y %}a{% endfor %}",
        "{% for c in u %}{{ c }}.{% endfor %}",
        "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
        "{% for x in l if yes else empty %}{{ x }}{% endfor %}",
        "{% for x in (l if yes else empty) %}{{ x }}{% endfor %}",
        "{% for x in range(10) %}{% if x == 5 %}{% break %}{% endif %}{% if x % 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
        "{% for x in l %}{% break %}{% else %}none{% endfor %}",
        "{% break %}",
        "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
        "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
        "{% for x in l %}{% else %}{% break %}{% endfor %}",
        "{% for y in l %}{% for x in empty %}{% else %}{{ y }}{% break %}{% endfor %}{% endfor %}",
        "{% for x in l %}{% set a %}q{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ a }}{% endfor %}",
        "{% for x in l %}{% filter upper %}q{{ x }}{% if x == 1 %}{% continue %}{% endif %}r{% endfilter %}{% endfor %}",
        "{% for a in l %}{% for b in words %}{{ a }}{{ b }}{{ loop.index }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}{{ loop.index }}|{% endfor %}",
        "{% for x in tree recursive %}{{ x.k }}{{ loop.depth }}{% if x.c %}[{{ loop(x.c) }}]{% endif %}{% if not loop.last %},{% endif %}{% endfor %}",
        "{% for x in l %}{{ loop(l) }}{% endfor %}",
        "{% for x in tree recursive %}{{ loop(x) }}{% endfor %}",
        "{% for loop in l %}{% endfor %}",
        "{% for x in l %}{% set loop = 1 %}{% endfor %}",
        "{% set loop = 1 %}{{ loop }}",
        "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
        "{% for y in l if s %}{{ y }}{% endfor %}{% set s = n %}{{ s }}",
        "{% macro m() %}[{{ s }}]{% endmacro %}{{ m() }}{% set s = n %}{{ m() }}",
        "{% macro m() %}[{{ s }}]{% endmacro %}{{ m() }}{% if n %}{% set s = n %}{% endif %}{{ m() }}",
        "{% macro m() %}[{{ s }}]{% endmacro %}{{ s }}{{ m() }}{% set s = n %}{{ m() }}",
        "{% for i in l %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}",
        "{% set ns = namespace(x=0, found=false) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}{% set ns.new = 'q' %}{{ ns.new }}{{ ns }}",
        "{% set d.x = 1 %}",
        "{% set missing.x = 1 %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% set ns = namespace(items=3) %}{{ ns.items }}{{ ns['items'] }}{{ ns.q is defined }}",
        "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e) = [3, 4] %}{{ c }}{{ e }}",
        "{% set a, = [9] %}{{ a }}",
        "{% set a, b = 1 %}",
        "{% set ns = namespace() %}{% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}",
        "{% set x = 1, 2 %}{{ x }}",
        "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }}",
        "{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]",
        "{% set ns = namespace() %}{% set ns.t %}hi{% endset %}{{ ns.t }}",
        "{% set 1 = 2 %}",
        "{% set true = 2 %}",
        "{% set [a] = [2] %}",
        "{% set x = %}",
        "{% set x y %}",
        "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}{% if no %}{% set r = 1 %}{% endif %}[{{ r }}]",
        "{% if no %}{% set n = 99 %}{% endif %}{{ n }}",
        "{% set n = n + 1 %}{{ n }}{% set n = n * 2 %}{{ n }}",
        "{% for x in l %}{% if x == 1 %}{% set n = 100 %}{% endif %}{{ n }} {% endfor %}{{ n }}",
        "{% with a = 1, b = n %}{{ a + b }}{% set n = 2 %}{{ n }}{% endwith %}{{ n }}{{ a }}",
        "{% with %}{% set q = 3 %}{{ q }}{% endwith %}{{ q }}",
        "{% with a = 1, b = a %}{{ b }}{% endwith %}",
        "{% filter upper %}a{{ s }}{% endfilter %}",
        "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
        "{% filter nope %}a{% endfilter %}",
        "{% print n, s %}",
        "{% block b %}{{ n }}{% endblock %}",
        "{% set q = 1 %}{% block b %}{{ q }}{% set q = 2 %}{{ q }}{% endblock b %}{{ q }}",
        "{% for x in l %}{% block b scoped %}{{ x }}{% endblock %}{% endfor %}",
        "{% for x in l %}{% block b %}[{{ x }}]{% endblock %}{% endfor %}",
        "{% block b %}{% endblock %}{% block b %}{% endblock %}",
        "{% block b required %}{% endblock %}",
        "{% generation %}a{{ n }}{% endgeneration %}b{% generation %}c{% endgeneration %}",
        "{% generation %}{% set n = 1 %}{{ n }}{% endgeneration %}{{ n }}",
        "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}-{% endfor %}",
        "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
        "{% if no %}{{ n | nope }}{% endif %}ok",
        "{% if yes %}{{ n | nope }}{% endif %}ok",
        "{% for x in empty %}{{ n | nope }}{% endfor %}ok",
        "{% if no %}{% for x in l %}{{ n | nope }}{% endfor %}{% endif %}ok",
        "{{ (n | nope) if no else 'ok' }}",
        "{{ 'ok' if yes else (n is nope) }}",
        "{{ n is nope if yes else 1 }}",
        "{% macro m() %}{{ n | nope }}{% endmacro %}ok",
        "{% raw %}{{ n }}{% if %}{% endraw %}{{ n }}",
        "{%- raw -%} {{ n }} {%- endraw -%} x",
        "{% raw %}a", "{# a", "{{ n", "{% if n", "{{ n }", "{{ '}}' }}", "{{ \"%}\" }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}",
        "{{ n }} {{n}}{{-n-}} {{+ n +}}",
        "{{- -n -}}",
        "{{", "}}", "{%", "%}", "{#", "#}", "{", "}", "{ {", "%", "", "\n", "\n\n", "a\r\nb\rc\n",
    ],
    "macros": [
        "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=5) }}|{{ m(a=0, b=1) }}|{{ m() }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
        "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m() }}",
        "{% macro m(a) %}{{ a }}{{ varargs | join }}{{ kwargs.items() | list }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
        "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}",
        "{% macro m(a=b, b=1) %}[{{ a }}{{ b }}]{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{{ n }}{% endcall %}",
        "{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b=3, c=4) m() %}{{ a }}{{ b }}{{ c }}{% endcall %}",
        "{% macro m() %}{{ caller }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% if caller %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m() }}{% call m() %}yes{% endcall %}",
        "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
        "{% macro m(caller=none) %}{{ caller() if caller else 'n' }}{% endmacro %}{{ m() }}{% call m() %}b{% endcall %}",
        "{% macro m(caller) %}{{ caller }}{% endmacro %}",
        "{% macro f(n) %}{{ n * f(n - 1) | int if n > 1 else 1 }}{% endmacro %}{{ f(5) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(5) }}",
        "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}",
        "{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
        "{% for i in l %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
        "{% if yes %}{% macro m() %}a{% endmacro %}{% endif %}{{ m() }}",
        "{{ m() }}{% macro m() %}a{% endmacro %}",
        "{% macro m(a, a) %}{% endmacro %}",
        "{% macro m(a=1, b) %}{% endmacro %}",
        "{% macro m(1) %}{% endmacro %}",
        "{% macro m %}{% endmacro %}",
        "{% macro m() %} a {% endmacro %}[{{ m() }}][{{ m() | trim }}][{{ m() | length }}]{{ m.name }}",
        "{% macro m() %}a{% endmacro %}{{ m }}{{ m is callable }}{{ m() is string }}{{ m() + 'b' }}{{ m() == 'a' }}{{ [m()] }}{{ m()[0] }}{{ m() ~ 1 }}{{ m() in ['a'] }}",
        "{% macro a(x) %}<{{ x }}>{% endmacro %}{% macro b(x) %}{{ a(x) }}{{ a(a(x)) }}{% endmacro %}{{ b('q') }}",
        "{% macro m(l) %}{% for x in l %}{% if x is iterable %}({{ m(x) }}){% else %}{{ x }}{% endif %}{% endfor %}{% endmacro %}{{ m(nested) }}",
        "{% macro m(*a) %}{% endmacro %}",
        "{{ range(*[1, 4]) | list }}{{ dict(**{'a': 1}) }}{{ dict({'b': 2}, **{'a': 1}) }}",
        "{{ range(*5) }}", "{{ dict(**5) }}", "{{ dict(a=1, a=2) }}", "{{ dict(a=1, **{'a': 2}) }}",
        "{% call n() %}{% endcall %}", "{% call n %}{% endcall %}", "{% call m() %}",
        "{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m('a') }}",
        "{% set f = joiner(', ') %}{% for x in l %}{{ f() }}{{ x }}{% endfor %}",
        "{% set c = cycler('a', 'b') %}{% for x in l %}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}{{ c.next() }}",
        "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}",
        "{% macro m(varargs=3) %}{{ varargs }}{% endmacro %}{{ m() }}{{ m(1) }}",
        "{% macro true() %}{% endmacro %}",
        "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
    ],
    "space": [
        "a\n{% if n %}\nb\n{% endif %}\nc\n",
        "a\n  {% if n %}  \n  b\n  {% endif %}\nc\n\n",
        "a\n  {%- if n -%}  \n  b\n  {%- endif -%}\nc\n",
        "a\n  {%+ if n +%}  \n  b\n  {%+ endif +%}\nc\n",
        "a\n  {{ n }}\n  {{- n }}\n  {{ n -}}\n  b",
        "  {% set x = 1 %}  \n  {{ x }}",
        "\t {# c #}\n\t {# d #} x {# e #}\n",
        "a {#- c -#} b {# c -#} d\n{#+ c +#}\ne",
        "a\n  {# c +#}\nb",
        "a  {% if n %}b{% endif %}  c",
        "{% if n %}\n\n\na{% endif %}\n\n",
        "x  {%- set a = 1 %}\n\n  {%- set b = 1 %}\n  y",
        "  {% raw %}  \n a {% endraw %}  \n b",
        "a\n  {%- raw %}\n b\n  {%- endraw %}\nc",
        "a\n  {% raw -%}\n b\n  {% endraw +%}\nc",
        "\u00a0{% if n %}\u00a0\n{% endif %}",
        "a\x0b{%- if n %}b{% endif -%}\x0cc",
        "{{ n }}\n{{ n }}\n",
        "{% for x in l %}\n  {{ x }}\n{% endfor %}\n",
        "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n",
        "a{% if n %}{% endif %}\n\nb",
        "{#}#}", "{#-#}a", "{#--#}a", "{# {# #} #}", "{##}x", "{% # %}",
        "{%if n%}a{%endif%}", "{%-if n-%}a{%-endif-%}", "{{n}}{%-endraw%}",
        "{% if n %}\r\na\r\n{% endif %}\r\nb",
        "{% if n: %}a{% endif %}", "{% for x in l: %}{{ x }}{% endfor %}",
        "{{ 'a\r\nb' }}",
        "{{\n n\n +\n 1\n}}",
        "  {{- 'a' }}  {%- if n %}  b  {%- endif %}  ",
        "line\n    {% if n %}in{% endif %}   \nend",
        "{{ n }}{# c #}\n{{ n }}", "{{ n }}{# c -#}\n{{ n }}",
        "a\n\n  {%- for x in l %}\n\n  {{- x }}\n\n  {%- endfor %}\n\nb",
    ],
}
