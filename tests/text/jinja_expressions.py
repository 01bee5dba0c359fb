"""Small templates that are rendered by jinja2 and by ours and compared: one feature each.

EXPRESSIONS are put between {{ and }}; STATEMENTS are whole templates. VARIABLES is what all of them see.
"""

VARIABLES = {
    "yes": True,
    "no": False,
    "nothing": None,
    "zero": 0,
    "one": 1,
    "n": 7,
    "neg": -3,
    "half": 0.5,
    "pi": 3.14159,
    "big": 1e16,
    "tiny": 1e-5,
    "text": "Hello World",
    "padded": "  a b\t\n",
    "empty": "",
    "quote": "it's",
    "both": "it's \"x\"",
    "uni": "Größe 世界 😀 é",
    "lines": "one\ntwo\r\nthree\n\nfour",
    "html": "<a href=\"x\">&'</a>",
    "nums": [3, 1, 2],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": 1}],
    "words": ["pear", "Apple", "fig", "apple"],
    "void": [],
    "d": {"a": 1, "b": [1, 2], "items": "shadow", "c d": {"x": None}, "ü": "é"},
    "nodict": {},
    "people": [
        {"name": "Zoe", "age": 30, "tags": ["x"], "home": {"city": "Rom"}},
        {"name": "adam", "age": 25, "tags": [], "home": {"city": "Ulm"}},
        {"name": "Bob", "age": 30, "home": {}},
    ],
    "nested": {"type": "object", "properties": {"a": {"type": ["string", "null"], "enum": ["x", 1, 1.0, False]}}},
}

EXPRESSIONS = """
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
0 ** 0
0 ** -1
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
7.5 % -2
1 / 2
4 / 2
1 / 0
1 // 0
1 % 0
1.0 / 0
0.1 + 0.2
1e3
1.5e-7
1E5
1_000
1_0.2_5
0x1F
0b101
0o17
0xff + 1
00
1e16
123456789012345.0
1234567890123456789.0
1e22
1e-4
0.0001
0.00001
100.0
-0.0
3 * "ab"
"ab" * 3
"ab" * -1
[1] * 3
2 * (1, 2)
"ab" * 1.5
"a" + "b"
"a" + 1
1 + "a"
"a" ~ 1 ~ none ~ true
1 ~ 2
1 + 2 ~ 3 + 4
"1" ~ 2 * 3
[1] + [2]
(1,) + (2,)
[1] + (2,)
true + true
true * 3
-true
+1.5
-none
- "a"
not 1
not not 1
not ""
1 < 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
1 == 1.0
1 == true
"1" == 1
1 != 2
"a" < "b"
"a" < "B"
"é" < "z"
"a" < 1
[1, 2] < [1, 3]
[1] < [1, 0]
(1, 2) == [1, 2]
(1, 2) < (1, 3)
[1, "a"] < [1, 2]
{"a": 1} == {"a": 1.0}
{"a": 1, "b": 2} == {"b": 2, "a": 1}
{"a": 1} < {"a": 2}
none == none
none < 1
1 in [1, 2]
1.0 in [1, 2]
3 not in [1, 2]
"a" in "abc"
"" in "abc"
1 in "abc"
"a" in {"a": 1}
"b" in d
[1] in [[1]]
[] in {}
1 in 5
"x" in none
not 1 in [1]
1 in [1] == true
1 and 2
0 and 2
0 or "x"
"" or 0 or none
1 or 1/0
0 and 1/0
1 and not 0
1 if yes else 2
1 if no else 2
1 if no
(1 if no) is defined
1 if no else 2 if no else 3
"a" if yes else "b" ~ "c"
1 if yes if no else 3
[1 if yes else 2, 3]
missing
missing is defined
missing is not defined
missing | default("x")
missing.attr
missing["attr"]
missing[0]
missing()
missing + 1
missing ~ "x"
missing == missing2
missing == none
missing < 1
-missing
not missing
missing or "alt"
"a" in missing
missing in [1]
missing in [missing]
missing | length
missing | list
missing | upper
missing | trim
missing | join
missing | int
missing | float
missing | string
missing | tojson
missing | first
missing | last
missing | sum
missing | abs
missing | items | list
missing | dictsort
missing | map("upper") | list
missing | select | list
missing | replace("a", "b")
missing | e
missing | safe
missing | round
missing | sort
missing | reverse | list
missing | unique | list
missing | min
missing is none
missing is string
missing is iterable
missing is sequence
missing is mapping
missing is callable
missing is number
missing is odd
missing is true
missing | default("x") | upper
[missing]
{"a": missing}
missing ~ missing
nothing
nothing.x
nothing.x is defined
nothing["x"] is defined
nothing[0]
nothing | default("x")
nothing | default("x", true)
nothing | length
nothing | string
nothing ~ "x"
nothing + 1
nothing | upper
nothing | trim
nothing | list
nothing | int
nothing | int(5)
nothing | tojson
zero | default(5)
zero | default(5, true)
empty | default("e", boolean=true)
empty | d("e", true)
yes
no
yes | string
yes | int
yes | float
yes | lower
yes ~ ""
yes | tojson
text
text.upper()
text.lower()
text | length
text[0]
text[-1]
text[20]
text[-20]
text[20] is defined
text[1:4]
text[:5]
text[6:]
text[-5:]
text[::-1]
text[::2]
text[5:1:-1]
text[-1:-5:-2]
text[100:]
text[:-100]
text[100::-1]
text[::0]
text[1:2:3]
text["a":]
text[none:none]
text[true]
text["upper"]()
text.nope
text.nope is defined
text.nope()
text.upper is callable
text.upper is defined
text | upper | lower | title
text.split()
text.split(" ")
text.split("o")
text.split("o", 1)
text.split("o", maxsplit=1)
text.split(sep="l")
text.split(none, 1)
text.split("")
text.split(1)
text.rsplit("o", 1)
text.rsplit(" ")
" a  b c ".split()
" a  b c ".split(none, 1)
" a  b c ".rsplit(none, 1)
" a  b c ".split(" ")
"".split()
"".split(" ")
"   ".split()
"a,b,,c,".split(",")
"a,b,,c,".rsplit(",", 2)
"a--b--c".split("--")
"abc".split("abc")
lines.splitlines()
lines.splitlines(true)
lines.splitlines(keepends=True)
padded.strip()
padded.lstrip()
padded.rstrip()
padded | trim
padded | trim(" ")
"xxaxx".strip("x")
"xyxaxyx".strip("xy")
"xxaxx".lstrip("x")
"xxaxx".rstrip("x")
"xxaxx" | trim("x")
"xxaxx" | trim(chars="x")
"abc".strip("")
"abc".strip(none)
"abc".strip(1)
"\\u00a0\\u2003a\\u3000".strip()
"\\u200ba".strip() | length
text.startswith("Hell")
text.startswith(("x", "H"))
text.startswith("W", 6)
text.startswith("")
text.startswith(1)
text.startswith(["H"])
text.endswith("ld")
text.endswith(("x", "d"))
text.endswith("Wor", 0, 9)
"" is string
text.replace("o", "0")
text.replace("o", "0", 1)
text.replace("", "-")
text.replace("", "-", 3)
"".replace("", "x")
text.replace("l", "")
text.replace("zzz", "y")
text.replace(1, 2)
text | replace("l", "L")
text | replace("l", "L", 1)
text | replace("l", "L", count=2)
1234 | replace(2, "x")
"aaa".replace("aa", "b")
text.find("o")
text.find("zz")
text.find("o", 5)
text.find("o", 5, 6)
text.find("")
text.find("", 20)
text.find("", 11)
text.rfind("o")
text.rfind("o", 0, 6)
text.index("W")
text.index("zz")
text.rindex("l")
text.count("l")
text.count("")
"aaaa".count("aa")
uni.find("界")
uni.count("世")
uni[6:8]
uni[::-1]
uni | length
uni | upper
uni | lower
uni | capitalize
uni | title
uni | reverse
uni | list
uni.index("😀")
"straße".upper()
"ǆ".title()
"ŉ".upper()
"ﬁn".capitalize()
"ΑΣ".lower()
"ΑΣ Σ ΑΣΑ".lower()
"İ".lower()
"i̇".upper()
"hello wORLD".capitalize()
"hello wORLD".title()
"they're bill's".title()
"they're bill's" | title
"foo-bar (baz) [qux] {x} <y> a.b" | title
"foo-bar" | capitalize
"aBc".swapcase()
"abc".isalpha()
"ab1".isalnum()
"123".isdigit()
"12.".isdigit()
"".isdigit()
" \\t".isspace()
"ABC".isupper()
"abc".islower()
"aBc".islower()
"1".islower()
"abc".isascii()
uni.isascii()
"5".zfill(3)
"-5".zfill(4)
"abc".ljust(5)
"abc".ljust(5, "*")
"abc".rjust(5, ".")
"abc".center(6, "-")
"abc".center(8, "-")
"ab".center(5, "-")
"abc".center(2)
"abc".ljust(5, "ab")
"abc" | center(9)
"a=b=c".partition("=")
"abc".partition("=")
"a=b=c".rpartition("=")
"abc".rpartition("=")
"prefix-x".removeprefix("prefix-")
"x.txt".removesuffix(".txt")
"x.txt".removesuffix("")
", ".join(["a", "b"])
", ".join([])
", ".join(("a",))
", ".join("abc")
", ".join([1])
", ".join({"a": 1, "b": 2})
["a", "b"] | join(", ")
[1, 2, none, true] | join("-")
[1, 2] | join
"abc" | join("-")
people | join(", ", attribute="name")
people | map(attribute="name") | join(", ")
people | map(attribute="home.city") | list
people | map(attribute="home.city", default="?") | list
people | map(attribute="tags.0") | list
people | map(attribute="nope") | list
people | map("length") | list
words | map("upper") | list
words | map("replace", "p", "P") | list
words | map("truncated") | list
words | map | list
words | map(1) | list
nums | map("string") | join
[["a", 1], ["b", 2]] | map(attribute=0) | list
[["a", 1], ["b", 2]] | map("first") | list
[["a", 1], ["b", 2]] | map("last") | join
nums | map("int") | sum
nums | map("multiply") | list
nums | select("odd") | list
nums | select("gt", 1) | list
nums | select(">", 1) | list
nums | select("in", [1, 3]) | list
nums | select("divisibleby", 2) | list
nums | reject("odd") | list
mixed | select | list
mixed | reject | list
mixed | select("string") | list
mixed | select("none") | list
mixed | select("nope") | list
people | selectattr("age", "equalto", 30) | map(attribute="name") | list
people | selectattr("age", "==", 30) | list | length
people | selectattr("age", "gt", 25) | list | length
people | selectattr("tags") | list | length
people | selectattr("tags", "defined") | list | length
people | selectattr("home.city", "eq", "Rom") | list | length
people | rejectattr("tags") | list | length
people | rejectattr("age", "in", [25]) | list | length
people | selectattr | list
people | selectattr("name", "nope") | list
people | map(attribute="age") | unique | list
people | map(attribute="age") | sum
people | sum(attribute="age")
people | sort(attribute="name") | map(attribute="name") | list
people | sort(attribute="age,name") | map(attribute="name") | list
people | sort(attribute="age", reverse=true) | map(attribute="name") | list
people | sort(attribute="name", case_sensitive=true) | map(attribute="name") | list
people | sort
people | min(attribute="age") | tojson
people | max(attribute="age") | tojson
people | unique(attribute="age") | map(attribute="name") | list
words | sort
words | sort(reverse=true)
words | sort(case_sensitive=true)
words | sort(true)
words | unique | list
words | unique(true) | list
words | min
words | max
words | max(case_sensitive=true)
words | first
words | last
words | reverse | list
words | length
words | count
nums | sort
nums | sort | reverse | list
nums | sum
nums | sum(start=10)
nums | min
nums | max
nums | first
nums[0]
nums[-1]
nums[5] is defined
nums[5]
nums.0
nums.5 is defined
nums["0"] is defined
nums[1.0] is defined
nums[0:2]
nums[::-1]
nums[:-1]
nums[1:]
nums[-2:]
nums[::2]
nums[5:]
nums.index(1)
nums.index(9)
nums.count(1)
nums.append(4)
nums.append
nums.append is defined
nums.pop()
nums.sort()
nums.copy()
nums | batch(2) | list
nums | batch(2, "x") | list
void | batch(2) | list
nums | batch(0) | list
void | first
void | first is defined
void | last
void | min
void | max
void | sum
void | join(",")
void | list
void | tojson
void | sort
[] | first is defined
mixed
mixed | tojson
mixed | sort
mixed | list | length
mixed[5][0]
mixed[6].k
mixed[6]["k"]
(1,)
()
(1, 2)
(1)
[]
[1, 2,]
{}
{"a": 1, "b": 2,}
{1: "x"}[1]
{1: "x"}[1.0]
{true: "x"}[1]
{(1, 2): "x"}[(1, 2)]
{[1]: 2}
{"a": 1, "a": 2}
{none: 1}
{"a": {"b": [1, (2,), "q'"]}}
d
d.a
d["a"]
d.b[1]
d.b.1
d["c d"].x
d.items()
d["items"]
d.keys()
d.values()
d.keys() | list
d.values() | list
d.items() | list
d | items | list
d | list
d | length
d.get("a")
d.get("zz")
d.get("zz", 5)
d.get("zz") is none
d.get([])
d.get()
d.update({"z": 1})
d.pop("a")
d.setdefault("x", 1)
d.copy()
d.nope
d.nope is defined
d.nope.deeper
d["nope"]["deeper"]
d.a.b
d.ü
d | dictsort
nodict | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort(true)
{"b": 1, "A": 2, "c": 0} | dictsort(by="value")
{"b": 1, "A": 2, "c": 0} | dictsort(false, "value", true)
{"b": 1, 1: 2} | dictsort
{"b": 1} | dictsort(by="x")
{"b": 1}.items() | list | first
d.items()[0]
d.items() | first
d.items() | length
"a" in d.keys()
1 in d.values()
("a", 1) in d.items()
d.keys() | tojson
d | tojson
nested | tojson
nested | tojson(indent=2)
nested | tojson(indent=4)
nested | tojson(indent=0)
nested | tojson(indent="--")
nested | tojson(separators=(",", ":"))
nested | tojson(separators=[",", ":"])
nested | tojson(separators=(",",))
nested | tojson(sort_keys=true)
{"b": 1, "a": {"d": 1, "c": 2}} | tojson(sort_keys=true, indent=1)
{"b": 1, 1: 2} | tojson(sort_keys=true)
nested | tojson(ensure_ascii=true)
uni | tojson
uni | tojson(true)
uni | tojson(ensure_ascii=True)
"\\u007f\\u0001\\b\\f\\n\\r\\t/\\\\\\"" | tojson
html | tojson
both | tojson
[1.0, 1e20, 1e-7, 100000000000000000000.0, 0.1] | tojson
("inf" | float) | tojson
("nan" | float) | tojson
(1, [2]) | tojson
{1: 2, none: 3, true: 4, 2.5: 5} | tojson
{(1,): 2} | tojson
range(3) | tojson
text.upper | tojson
{} | tojson
[[]] | tojson(indent=2)
[{}] | tojson(indent=2)
"x" | tojson(indent=2)
html | e
html | escape
html | escape | escape
html | forceescape
html | safe
html | e | upper
html | safe ~ html
(html | safe) + html
html + (html | safe)
(html | safe) + "x" | safe
("<" | e) * 2
("<%s>" | safe) % html
("<{}>" | safe).format(html)
("<a>" | safe).replace("a", "<")
("," | safe).join(["<", "a"])
("a<" | safe)[1]
[html | safe]
"a" | safe | string
"x" | safe | tojson
"x" | safe == "x"
html | safe is escaped
html is escaped
1 | e
none | e
"%s" % 1
"%s and %s" % ("a", 2)
"%s" % ("a",)
"%s" % [1, 2]
"%s" % {"a": 1}
"%(a)s-%(b)s" % {"a": 1, "b": 2}
"%(zz)s" % {"a": 1}
"%d" % 3.7
"%d" % "3"
"%d" % true
"%5d|" % 42
"%-5d|" % 42
"%05d" % 42
"%+d" % 42
"% d" % 42
"%x %X %o" % (255, 255, 8)
"%#x" % 255
"%.2f" % 3.14159
"%8.3f|" % 3.14159
"%-8.1f|" % 3.14159
"%e" % 12345.678
"%g" % 0.00001
"%g" % 1234567.0
"%.3d" % 5
"%r" % "a'b"
"%5s|%-5s|" % ("a", "b")
"%.2s" % "abc"
"%%"
"%%" % ()
"%" % 1
"%s" % ()
"%s %s" % ("a",)
"abc" % 1
"abc" % [1]
"abc" % {}
"%c" % 65
"%c" % "A"
"%*d" % (5, 42)
"%z" % 1
"%s" % missing
"%s" | format("a")
"%s %s" | format("a", 1)
"%(a)s" | format(a=1)
"%s" | format("a", b=1)
"{}".format(1)
"{} {}".format(1, "b")
"{0} {1} {0}".format("a", "b")
"{a}".format(a=1)
"{a.b}".format(a={"b": 2})
"{a[b]}".format(a={"b": 2})
"{0[1]}".format([1, 2])
"{{}}".format()
"{:5}|".format("ab")
"{:>5}|".format("ab")
"{:^5}|".format("ab")
"{:^6}|".format("abc")
"{:*<5}".format("ab")
"{:05d}".format(42)
"{:5}|".format(42)
"{:<5}|".format(42)
"{:+}".format(42)
"{:,}".format(1234567)
"{:_}".format(1234567)
"{:,.2f}".format(1234567.891)
"{:.2f}".format(3.14159)
"{:.1%}".format(0.256)
"{:e}".format(12345.6789)
"{:g}".format(0.5)
"{:x}".format(255)
"{:#x}".format(255)
"{:b}".format(5)
"{:.3}".format("abcdef")
"{:.3}".format(3.14159)
"{!r}".format("a")
"{!s:>4}".format(1)
"{}".format(none)
"{:5}".format(none)
"{:d}".format(1.5)
"{".format(1)
"}".format(1)
"{} {0}".format(1)
"{}".format()
"{x}".format()
"{}".format([1, "a"])
"42" | int
" 42 " | int
"42.9" | int
"4_2" | int
"abc" | int
"abc" | int(7)
"abc" | int(default=-1)
"ff" | int(base=16)
"0xff" | int(base=16)
"0xff" | int(0, 16)
"0b11" | int(base=2)
"0x1f" | int(base=0)
"-12" | int
"+12" | int
"1e3" | int
"inf" | int
"nan" | int
"" | int
"1 2" | int
42.9 | int
-42.9 | int
[1] | int
"3.5" | float
"abc" | float
"abc" | float(1.5)
" 1e3 " | float
"inf" | float
"-Infinity" | float
"nan" | float
"1_0.5" | float
"0x10" | float
3 | float
"" | float
none | float
42.55 | round
42.5 | round
43.5 | round
42.55 | round(1)
42.55 | round(1, "floor")
42.55 | round(1, "ceil")
42.55 | round(1, method="floor")
2.675 | round(2)
1234.5 | round(-2)
42 | round
1250 | round(-2)
1350 | round(-2)
-1250 | round(-2)
42 | round(1, "floor")
42.1 | round | int
42.1 | round(0, "up")
"4" | round
-0.5 | round
0.5 | round
1.5 | round
true | round
-5 | abs
-5.5 | abs
5 | abs
"a" | abs
none | abs
true | abs
text is string
1 is string
1 is number
1.5 is number
true is number
"1" is number
1 is integer
true is integer
1.0 is integer
1.0 is float
1 is float
true is boolean
1 is boolean
true is true
1 is true
false is false
0 is false
none is none
[] is sequence
() is sequence
"" is sequence
{} is sequence
1 is sequence
range(3) is sequence
d.items() is sequence
(nums | map("string")) is sequence
[] is iterable
"" is iterable
{} is iterable
1 is iterable
range(3) is iterable
(nums | map("string")) is iterable
{} is mapping
[] is mapping
none is mapping
range is callable
text is callable
text.upper is callable
namespace is callable
3 is odd
4 is even
3.0 is odd
"a" is odd
9 is divisibleby 3
9 is divisibleby(3)
9 is divisibleby 0
1 is eq 1
1 is equalto 1
1 is equalto(1)
1 is ne 2
1 is lt 2
1 is lessthan 2
1 is le 1
2 is gt 1
2 is ge 2
2 is greaterthan 2
"a" is in ["a"]
"a" is not in ["a"]
"a" is in "abc"
1 is sameas 1
true is sameas true
1 is sameas true
"ABC" is upper
"abc" is lower
"aBc" is lower
"1" is upper
"upper" is filter
"nope" is filter
"odd" is test
"nope" is test
1 is nope
1 is not none and 2 is not none
1 is defined is defined
1 is not defined
yes is true and no is false
text is string and text is not none
"x" if text is string else "y"
"x" if missing is defined else "y"
"x" if missing is defined and missing.y else "y"
text is eq text
nums is eq [3, 1, 2]
range(5)
range(5) | list
range(2, 5) | list
range(0, 10, 3) | list
range(5, 0, -2) | list
range(5, 0, -2)
range(0)
range(3)[1]
range(3)[-1]
range(5)[1:3]
range(5)[::-1]
range(10)[::3] | list
range(3) | length
range(3) == range(0, 3)
3 in range(5)
range(3) | sum
range(3) | reverse | list
range(1.5)
range(0, 5, 0)
range(200000) | length
range()
range(1, 2, 3, 4)
dict(a=1, b=2)
dict()
dict({"a": 1}, b=2)
dict([("a", 1), ("b", 2)])
dict([1])
dict(1)
dict(d, **{"z": 1})
dict(**{"a": 1})
namespace(a=1).a
namespace(a=1).b
namespace(a=1).b is defined
namespace(a=1)["a"]
namespace({"a": 2}).a
namespace(a=1)
namespace()
namespace(a=[1])
raise_exception("boom")
raise_exception()
strftime_now("%Y-%m-%d")
strftime_now("%d %b %Y")
strftime_now("%A, %B %d, %Y %H:%M:%S %p %I")
strftime_now("%a %y %j %U %W %w %u")
strftime_now("%F %T %D %R")
strftime_now("100%%")
strftime_now("%-d/%-m %e")
strftime_now("plain")
strftime_now()
"a" "b"
"a" 'b' ~ "c"
'it\\'s'
"tab\\tnew\\nline\\\\ \\x41 \\u00e9 \\U0001F600 \\101 \\q"
"a\\
b"
'\\x4'
"multi
line"
1 .foo
1if yes else 2
text . upper ( )
text[ 0 ]
[ 1 , 2 ] [ 0 ]
{"a": 1}.a
{"a": 1}["a"]
[1, 2].0
"abc".0
"abc"[1]
(1, 2)[0]
(1, 2).1
[[1, 2], [3, 4]][1][0]
nums[nums[1]]
d[text] is defined
d["a" if yes else "b"]
text[n:]
text[neg:]
text[:neg]
text[:missing]
nums[missing]
nothing[1:]
d[1:]
n[1:]
missing[1:]
text.split(" ")[0].upper()
text.split(" ") | first | lower
text | upper | replace("L", "l") | length
(text | upper).lower()
text | upper.lower()
"abc" | list | join("-") | upper
-1 | abs
- 1 | abs
(-1) | abs
1 + -1
2 * -3
1 - -1
1 -1
n-1
n -1
not n
n is odd and n > 5
n in [7] and text
n if n else zero
nums | length > 2
nums | length == 3 and yes
text | length * 2
text ~ nums | length
"a" ~ "b" | upper
("a" ~ "b") | upper
not missing is defined
not missing or 1/0
n ** 2 % 5
n % 4 * 2
n // 2 * 2 + n % 2
10 - 2 - 3
100 / 10 / 2
2 + 3 == 5
1 + 1 in [2]
"a" in "abc" and "d" not in "abc"
text == "Hello World"
text != "x"
"é" == "\\u00e9"
"e\\u0301" == "é"
half + half
half * 2
pi
big
tiny
-pi
pi | round(2)
pi | int
pi | string
"%.1f" % pi
big | int
1e308 * 10
1e308 * 10 - 1e308 * 10
2 ** 62
2 ** 0.5
(-8) ** 2
(-8) ** 3
4 ** 0.5
10 ** 18
9007199254740993 == 9007199254740992.0
9007199254740993 < 9007199254740992.0
quote
[quote]
[both]
["a\\\\b\\n\\t\\x01"]
[uni]
["\\u200b\\u00ad\\ufeff"]
["\\x7f\\x80"]
[1.0, 1e100, -0.0]
[true, none]
[range(3), ()]
{"a": ("x",)}
[text.upper] | length
lines | indent
lines | indent(2)
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent(width="> ")
lines | indent(width="> ", first=true)
"a" | indent
"" | indent(first=true)
"a\\n" | indent
5 | indent
nums | string
d | string
nums | upper
5 | upper
5 | trim
5 | replace("5", "6")
5 | length
5 | list
5 | join
5 | first
"abc" | first
"abc" | last
"abc" | sort
"abc" | reverse
"abc" | unique | join
"abc" | map("upper") | join
"abcabc" | list | unique | list
d | first
d | last
d | sort
d | map("upper") | join(",")
d | join(",")
d | reverse | list
d | min
(nums | map("string")) | length
(nums | map("string")) | first
(nums | map("string")) | last
(nums | map("string"))[0] is defined
(nums | map("string")) | string | length > 0
(nums | select) is defined
1 if (void | map("string")) else 2
(text | attr("upper"))()
d | attr("a")
d | attr("a") is defined
d | attr("items") is callable
text | attr("nope") is defined
text | nope
text | groupbyx
text | default
missing | default(default_value="z")
missing | default("a", "b", "c")
text | default(foo=1)
text | trim(chars="H", chars="d")
text | upper(1)
text | replace("a")
text | replace()
[1, 2] | join(d="+")
text | string | upper
*text
text.upper(*[])
"{} {}".format(*["a", "b"])
"{x}".format(**{"x": 1})
"{} {x}".format("a", **{"x": 1})
"{} {}".format("a", *["b"])
"{x}".format(x=1, **{"x": 2})
"{}".format(*5)
"{}".format(**5)
text.upper(1)
text.upper(a=1)
text.split(sep=" ", sep=" ")
text.__class__
text.__class__ is defined
text._x is defined
d.__class__
d["__class__"] is defined
[].__len__
"{0.__class__}".format("a")
loop
loop is defined
self is defined
self.block is defined
self.block
true
True
false
None
True is true
none is none
1 ; 2
1 +
( 1
[1, 2
{"a" 1}
{"a": 1
1 2
a b
"abc
'abc"
text..upper
text.
text[
text[1:2:3:4]
| upper
1 | 
1 is
@
$x
a ? b
a ! b
a & b
1 = 2
x := 1
lambda x: x
[x for x in y]
f"a"
1..2
.5
5.
1.5.5
0123
1__0
0x
1e
é
é is defined
名 is defined
_x is defined
x1 is defined
1x
"""

STATEMENTS = [
    # White space.
    "a\n",
    "a\n\n",
    "a\r\nb\rc\n",
    "  {% if yes %}\n  x\n  {% endif %}\n y",
    "a {% if yes %} b {% endif %} c",
    "a {%- if yes %} b {%- endif %} c",
    "a {% if yes -%} b {% endif -%} c",
    "a {%- if yes -%} b {%- endif -%} c",
    "  {%+ if yes %}x{% endif %}",
    "{% if yes +%}\nx{% endif %}",
    "{% if yes %}\n\nx{% endif %}",
    "x\n  {% set a = 1 %}  \ny",
    "x\n \t {%- set a = 1 %}\n\ny",
    "x {{ 1 }}\n{{ 2 }}\n",
    "x  {{- 1 -}}  y",
    "x\n\n{{- 1 -}}\n\ny",
    "x {{+ 1 }} y",
    "x {{ 1 +}} y",
    "{{-1}}",
    "{{ -1}}",
    "{#- c -#} x",
    "a {# c #} b",
    "a\n  {# c #}\nb",
    "a\n  {#+ c #}\nb",
    "a\n  {# c +#}\nb",
    "a\n  {#- c -#}\nb",
    "a {# multi\nline #} b",
    "{##}x",
    "{#-#}x",
    "{# a #}{# b #}\nx",
    "{# {{ nope( }} #}x",
    "{# unclosed",
    "{% raw %}{{ x }}{% endraw %}",
    "{% raw %}\n {{ x }} \n{% endraw %}\nb",
    "a {%- raw -%} \n {{ x }} \n {%- endraw -%} b",
    "  {% raw %} x {% endraw %}",
    "{%raw%}{% if %}{%endraw%}",
    "{% raw %}{% endraw",
    "{% raw %}a",
    "{% raw %}{% endrawx %}{% endraw %}",
    "\u00a0{%- if yes %}x{% endif %}",
    "\u3000\n {% if yes %}x{% endif %}",
    "a\u2028 {% if yes %}x{% endif %}",
    "\n",
    "",
    " ",
    "\t{% if yes %}\t{% endif %}\t",
    "{% if yes %}\r\nx\r\n{% endif %}\r\n",
    "a{% if yes %}\n{% endif %}\n\nb",
    "{%- if yes -%}\n\n x \n\n{%- endif -%}",
    "{{ '}}' }}",
    "{{ \"%}\" }}{% if '%}' %}x{% endif %}",
    "{{ {'a': {'b': 1}}['a'] }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ [[1]] }}",
    "{ { x } }",
    "{x}",
    "}}",
    "%}",
    "#}",
    "{",
    "{{",
    "{%",
    "{{ 1",
    "{% if yes",
    "{% %}",
    "{{ }}",
    "{% 1 %}",
    "{% if yes %}x",
    "{% endif %}",
    "{% if yes %}x{% endfor %}",
    "{% for x in nums %}{% endif %}{% endfor %}",
    "{% nope %}",
    "{% if yes %}{% nope %}{% endif %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% do nums.append(1) %}",
    "{% trans %}x{% endtrans %}",
    "{% debug %}",
    # if
    "{% if yes %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif yes %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% elif yes %}d{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if nums and d %}a{% endif %}",
    "{% if not yes %}a{% else %}b{% endif %}",
    "{% if yes: %}a{% endif %}",
    "{% if 1 if yes else 0 %}a{% endif %}",
    "{% if (1 if yes else 0) %}a{% endif %}",
    "{% if %}a{% endif %}",
    "{% if 1, 2 %}a{% endif %}",
    "{% if yes %}{% else %}{% else %}{% endif %}",
    "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% if no %}{% set q = 1 %}{% endif %}{{ q }}|{{ q is defined }}",
    # set
    "{% set a = 1 %}{{ a }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = 'xy' %}{{ a }}{{ b }}",
    "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}",
    "{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}",
    "{% set a, = [1] %}{{ a }}",
    "{% set a, b = 1 %}",
    "{% set a, b = [1] %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set a, a = 1, 2 %}{{ a }}",
    "{% set n = n + 1 %}{{ n }}",
    "{% set true = 1 %}",
    "{% set none = 1 %}",
    "{% set 1 = 1 %}",
    "{% set a.b.c = 1 %}",
    "{% set a[0] = 1 %}",
    "{% set a = %}",
    "{% set = 1 %}",
    "{% set a 1 %}",
    "{% set a == 1 %}",
    "{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{% set ns.y = 3 %}{{ ns.x }}{{ ns.y }}{{ ns }}",
    "{% set ns = namespace() %}{% for i in nums %}{% set ns.last = i %}{% endfor %}{{ ns.last }}",
    "{% set ns = namespace(a=1) %}{% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(a=1) %}{% set m = ns %}{% set m.a = 2 %}{{ ns.a }}",
    "{% set d.x = 1 %}",
    "{% set nope.x = 1 %}",
    "{% set text.x = 1 %}",
    "{% set ns = namespace(items=[1]) %}{{ ns.items }}{% set ns.items = ns.items + [2] %}{{ ns.items }}",
    "{% set ns = namespace(f=false) %}{% for x in nums if not ns.f %}{{ x }}{% set ns.f = true %}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for x in nums if not ns.f %}{{ x }}{{ loop.last }}{% set ns.f = true %}{% endfor %}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x %}\n a \n{% endset %}[{{ x }}]",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "{% set ns = namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "{% set x %}<b>{% endset %}{{ x is escaped }}{{ x }}",
    "{% set x | nope %}abc{% endset %}",
    "{% set x %}a",
    "{% set x = 5 -%}\n  {{ x }}",
    "{% set a = b = 1 %}",
    "{% set x = nums %}{% set y = x + [9] %}{{ x }}{{ y }}",
    "{% set range = 5 %}{{ range }}",
    "{% set messages = [] %}{{ messages }}",
    # for
    "{% for x in nums %}{{ x }}{% endfor %}",
    "{% for x in nums %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in void %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in missing %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in nothing %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }},{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for x in nums if x > 1 %}{{ x }}{% endfor %}",
    "{% for x in nums if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in nums if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in nums %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in nums %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in nums %}{{ loop.nope }}{{ loop.nope is defined }}{% endfor %}",
    "{% for x in nums %}{% if loop.first %}F{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}",
    "{% for x in nums | map('string') %}{{ loop.length }}{{ x }}{% endfor %}",
    "{% for x in nums | map('string') %}{{ x }}{{ loop.revindex }}{% endfor %}",
    "{% for x in nums | select('gt', 1) %}{{ loop.last }}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for x in nums %}{% for y in nums %}{{ loop.index }}{% endfor %}{{ loop.index }}|{% endfor %}",
    "{% for x in nums %}{% set outer = loop %}{% for y in nums %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in nums %}{% for y in [1] %}{{ x }}{% endfor %}{% endfor %}",
    "{% for x in nums %}{% set a = x %}{% endfor %}{{ a is defined }}",
    "{% set a = 0 %}{% for x in nums %}{% set a = a + x %}{{ a }},{% endfor %}{{ a }}",
    "{% for x in nums %}{{ a is defined }}{% set a = 1 %}{{ a }}{% endfor %}",
    "{% for x in nums %}{% endfor %}{{ x is defined }}",
    "{% set x = 'o' %}{% for x in nums %}{{ x }}{% endfor %}{{ x }}",
    "{% for n in nums %}{{ n }}{% endfor %}{{ n }}",
    "{% for nums in nums %}{{ nums }}{% endfor %}",
    "{% for x in [[1], [2, 3]] %}{% for x in x %}{{ x }}{% endfor %}{{ x }};{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% break %}{% else %}E{% endfor %}",
    "{% for x in nums %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in nums %}{% set q %}a{% break %}{% endset %}{% endfor %}z",
    "{% for x in nums %}{% filter upper %}a{% continue %}{% endfilter %}{% endfor %}z",
    "{% break %}",
    "{% continue %}",
    "{% for x in nums %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in nums %}{% endfor %}{% break %}",
    "{% for x in nums[::-1] %}{{ x }}{% endfor %}",
    "{% for x in nums | reverse %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for i in range(nums | length) %}{{ nums[i] }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in (1, 2) if x %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] if yes else [3] %}{{ x }}{% endfor %}",
    "{% for x in ([1, 2] if yes else [3]) %}{{ x }}{% endfor %}",
    "{% for x in nums if x if yes %}{{ x }}{% endfor %}",
    "{% for x %}{% endfor %}",
    "{% for in nums %}{% endfor %}",
    "{% for x in %}{% endfor %}",
    "{% for 1 in nums %}{% endfor %}",
    "{% for loop in nums %}{% endfor %}",
    "{% for x in nums %}{% set loop = 1 %}{% endfor %}",
    "{% for x.y in nums %}{% endfor %}",
    "{% for x in people %}{{ x.name }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for x in people %}{{ x.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for p in people if p.tags %}{{ p.name }}{% endfor %}",
    "{% for p in people | selectattr('age', 'eq', 30) %}{{ p.name }}{% endfor %}",
    "{% for p in people | sort(attribute='age') %}{{ p.name }}{% endfor %}",
    "{% for b in nums | batch(2) %}{{ b }}{% endfor %}",
    "{% set g = nums | map('string') %}{{ g | list }}{{ g | list }}",
    "{% set g = nums | map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g | list }}",
    "{% set g = nums | select %}{{ 3 in g }}{{ 3 in g }}{{ g | list }}",
    "{% set g = nums | reverse %}{{ g | first }}{{ g | list }}",
    "{% set i = d.items() %}{{ i | list | length }}{{ i | list | length }}",
    # macros
    "{% macro m() %}x{% endmacro %}{{ m() }}",
    "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(1) }}{{ m() }}{{ m(a=2) }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=b, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{{ m(b=5) }}",
    "{% macro m(a, b=n) %}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ m(a=1, z=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}",
    "{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}",
    "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ x is defined }}{% endmacro %}{% for x in nums %}{{ m() }}{% endfor %}",
    "{% for x in nums %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% for x in nums %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f(k) %}{{ f(k) }}{% endmacro %}{{ f(1) }}",
    "{% macro m() %}  x {% endmacro %}[{{ m() }}][{{ m() | trim }}][{{ m()[2] }}]",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(a, b=7) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1) %}{{ n }}{% endcall %}",
    "{% macro m(caller=1) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% macro m(caller) %}{{ caller }}{% endmacro %}",
    "{% macro i() %}<{{ caller() }}>{% endmacro %}{% macro o() %}{% call i() %}x{% endcall %}{% endmacro %}{{ o() }}",
    "{% macro i() %}<{{ caller() }}>{% endmacro %}{% macro o() %}{% call i() %}{{ caller() }}{% endcall %}{% endmacro %}{% call o() %}y{% endcall %}",
    "{% call text %}x{% endcall %}",
    "{% call text.upper() %}x{% endcall %}",
    "{% call nope() %}x{% endcall %}",
    "{% macro m %}x{% endmacro %}",
    "{% macro m() %}x",
    "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}",
    "{% macro m() %}x{% endmacro %}{{ m is callable }}{{ m.nope is defined }}",
    "{% macro m(x) %}{% if x %}{{ return }}{% endif %}{% endmacro %}{{ m(1) }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('a') }}]",
    "{% if yes %}{% macro m() %}M{% endmacro %}{% endif %}{{ m() }}",
    "{% set ns = namespace(s='') %}{% macro add(t) %}{% set ns.s = ns.s ~ t %}{% endmacro %}{{ add('a') }}{{ add('b') }}{{ ns.s }}",
    "{% macro m(x) %}{{ x | tojson }}{% endmacro %}{{ nums | map('tojson') | join(';') }}{{ m(d) }}",
    # filter, with, generation, print
    "{% filter upper %}abc{{ n }}{% endfilter %}",
    "{% filter trim | upper %}  abc {% endfilter %}",
    "{% filter replace('a', 'b') %}aaa{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% filter nope %}a{% endfilter %}",
    "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% with a, b = (1, 2) %}{{ a }}{% endwith %}",
    "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    "{% for x in nums %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% for x in nums %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{%- generation -%} a {%- endgeneration -%} b",
    "{% generation %}a",
    "{% print 1, 'a' %}",
    "{% print nums | length %}",
    # errors in the middle
    "a{{ raise_exception('no ' ~ n) }}b",
    "{% if no %}{{ raise_exception('x') }}{% endif %}fine",
    "{% if n > 5 %}{{- raise_exception('x') -}}{% endif %}",
    "{% for x in nums %}{{ x / (x - 1) }}{% endfor %}",
    "{{ nums | map(attribute='a.b') | list }}",
    "{{ d.nope.more }}",
    "{{ text.strip(5) }}",
    # idioms of chat templates
    "{{- '<|im_start|>' + 'user' + '\\n' + text + '<|im_end|>' + '\\n' }}",
    "{%- set loop_messages = people[1:] %}{{ loop_messages | length }}",
    "{%- if people[0]['name'] == 'Zoe' -%}{%- set system = people[0]['name'] | trim + '\\n\\n' -%}{%- else -%}{%- set system = '' -%}{%- endif -%}{{ system }}",
    "{{ bos_token }}x",
    "{% if (1 == 1) != (2 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}ok",
    "{%- for m in people | selectattr('age', '>=', 30) -%}{{ loop.index0 % 2 == 0 }}{%- endfor -%}",
    "{% set content = 'a</think>b' %}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|{{ content.split('</think>')[-1].lstrip('\\n') }}",
    "{% set args = {'x': 1} %}{{ args | tojson if args is mapping else args }}",
    "{% for k, v in nested.properties.items() %}{{ k }}:{{ v.type | join('|') if v.type is iterable and v.type is not string else v.type }}{% endfor %}",
    "{{ nested.properties.a.enum | map('tojson') | join(', ') }}",
    "{% set tool = {'function': {'name': 'f'}} %}{%- if tool.function %}{%- set tool = tool.function %}{%- endif %}{{ tool.name }}",
    "{% if messages is not defined %}{% set messages = [] %}{% endif %}{{ messages | length }}",
    "{% set enable_thinking = enable_thinking | default(true) %}{{ enable_thinking }}",
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}",
    "{% if tools is defined and tools is not none %}T{% else %}N{% endif %}",
    "{%- macro r(p) -%}\n{%- for k, v in p.items() -%}\n{{ k }}{{- ': ' ~ (r(v) if v is mapping else v | tojson) }};\n{%- endfor -%}\n{%- endmacro -%}\n{{ r(nested) }}",
    "{{ ('a' ~ 'b') * 2 if yes }}",
    "{%- set ns = namespace(multi=true, last=people|length - 1) -%}{%- for m in people[::-1] -%}{%- set i = (people|length - 1) - loop.index0 -%}{%- if ns.multi and m.age == 25 -%}{%- set ns.multi = false -%}{%- set ns.last = i -%}{%- endif -%}{%- endfor -%}{{ ns.last }}",
]


def cases():
    """Every template with its variables."""
    lines = EXPRESSIONS.strip("\n").split("\n")
    expressions = []
    for line in lines:
        expressions.append(line)
    # Two of the expressions contain a line break: join them again.
    joined = []
    for line in expressions:
        if joined and (joined[-1] == '"multi' or joined[-1] == '"a\\'):
            joined[-1] += "\n" + line
        else:
            joined.append(line)
    templates = ["{{ " + e + " }}" for e in joined] + STATEMENTS
    return [(t, VARIABLES) for t in templates]
