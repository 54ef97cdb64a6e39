# SPDX-License-Identifier: Apache-2.0
"""A source file, lexed far enough for the rules: what is code, what is comment, which functions.

Comments and the insides of strings are blanked, not removed, so that lines and columns stay."""
import re

C_ENDINGS = (".c", ".h", ".cu", ".cuh")
SCRIPT_ENDINGS = (".py", ".sh", ".cmake")
SCRIPT_NAMES = ("Makefile", "CMakeLists.txt")
C_ROOTS = ("src/", "include/", "cmd/", "tests/", "bench/")

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NAME_BEFORE_PAREN = re.compile(r"([A-Za-z_]\w*)\s*$")
NOT_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "__attribute__"}


def is_c(name):
    return name.endswith(C_ENDINGS) and name.startswith(C_ROOTS)


def is_script(name):
    parts = name.split("/")
    tool = parts[0] in ("tools", ".ci") and "." not in parts[-1]
    return name.endswith(SCRIPT_ENDINGS) or parts[-1] in SCRIPT_NAMES or tool


def is_source(name):
    return is_c(name) or is_script(name)


def blank(text, keep_strings=False):
    """Comments (and the insides of strings) as spaces; newlines stay."""
    def spaces(match):
        token = match.group(0)
        if token[0] in "\"'":
            if keep_strings:
                return token
            return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1]
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(spaces, text)


def blank_directives(code):
    """Preprocessor lines, with their continuations, as spaces."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.M)


class Function:
    """Lines are 1-based; `first` is the line of the name, `last` that of the closing brace."""

    def __init__(self, name, parameters, first, last, depth):
        self.name, self.parameters = name, parameters
        self.first, self.last, self.depth = first, last, depth

    @property
    def length(self):
        return self.last - self.first + 1


def split_parameters(text):
    """How many parameters stand between the parentheses of a declaration."""
    text = text.strip()
    if text in ("", "void"):
        return 0
    depth, count = 0, 1
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        count += char == "," and depth == 0
    return count


def match_back(code, close):
    """Index of the parenthesis that opens what closes at `close`, or -1."""
    depth = 0
    for i in range(close, -1, -1):
        depth += (code[i] == ")") - (code[i] == "(")
        if depth == 0:
            return i
    return -1


def match_forward(code, open_paren):
    """Index of the parenthesis that closes what opens at `open_paren`, or the end of the text."""
    depth = 0
    for i in range(open_paren, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    return len(code)


def signature(head):
    """(name, parameters, offset of the name) when the text before a brace declares a function."""
    head = head.rstrip()
    if not head.endswith(")"):
        return None
    open_paren = match_back(head, len(head) - 1)
    match = NAME_BEFORE_PAREN.search(head[:max(open_paren, 0)])
    if not match or match.group(1) in NOT_FUNCTIONS:
        return None
    return match.group(1), split_parameters(head[open_paren + 1:-1]), match.start(1)


def block_depth(code):
    """Deepest nesting of control blocks in a function body; braces of initialisers do not count."""
    stack, deepest = [], 0
    for i, char in enumerate(code):
        if char == "{":
            before = code[:i].rstrip()
            stack.append(before.endswith(")") or before.endswith(("else", "do")))
            deepest = max(deepest, sum(stack))
        elif char == "}" and stack:
            stack.pop()
    return deepest


def functions(code):
    """All function definitions of a file whose comments, strings and directives are blank."""
    found, depth, start, opened = [], 0, 0, None
    for i, char in enumerate(code):
        if char == "{":
            if depth == 0:
                declared = signature(code[start:i])
                opened = (declared, start, i) if declared else None
                # extern "C" { opens no new level.
                if code[start:i].strip().startswith("extern") and not declared:
                    start = i + 1
                    continue
            depth += 1
        elif char == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if opened:
                    (name, parameters, offset), begin, brace = opened
                    found.append(Function(name, parameters, line_of(code, begin + offset),
                                          line_of(code, i), block_depth(code[brace + 1:i])))
                    opened = None
                start = i + 1
        elif char == ";" and depth == 0:
            start = i + 1
    return found


def slots(code):
    """(name, parameters, line) of each function pointer: (*name)(...)."""
    for match in re.finditer(r"\(\*\s*(\w+)\)\s*\(", code):
        close = match_forward(code, match.end() - 1)
        yield (match.group(1), split_parameters(code[match.end():close]),
               line_of(code, match.start()))


def line_of(text, index):
    return text.count("\n", 0, index) + 1


class Source:
    def __init__(self, name, text):
        self.name, self.text = name, text
        self.lines = text.split("\n")
        if text.endswith("\n"):
            self.lines.pop()
        self.is_c = is_c(name)
        if self.is_c:
            self.code = blank(text)
            self.bare = blank_directives(self.code)
            self.functions = functions(self.bare)
            self.slots = list(slots(self.bare))

    def includes(self):
        """(line, header, quoted) of each #include."""
        for number, line in enumerate(blank(self.text, keep_strings=True).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if match:
                yield number, match.group(2), match.group(1) == '"'

    def reason_near(self, first, last):
        """Is there a `/* long: why */` in these lines or in the comment that ends above them?"""
        above = max(first - 1, 0)
        while above > 0:
            line = self.lines[above - 1]
            if not line.strip() or line.startswith("}"):
                break
            above -= 1
        return re.search(r"/\*\s*long:\s*\S", "\n".join(self.lines[above:last])) is not None

    def struct_line(self, line):
        """Line on which the struct around `line` begins; `line` itself when there is none."""
        for above in range(line, 0, -1):
            if self.lines[above - 1].startswith("struct"):
                return above
            if self.lines[above - 1].startswith("}"):
                break
        return line
