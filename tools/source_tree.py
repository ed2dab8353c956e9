"""What the checks of this folder share: which files there are, and C++ text without comments and strings."""
import io
import os
import re
import subprocess
import tarfile

ROOMS = ("base", "images", "proto", "ptx-transforms", "cubin-transforms", "scheduler", "pipelines", "sim-driver", "client-shim",
         "server")
OUTSIDE = ("tests", "bench")
CPP_SUFFIXES = (".h", ".cc", ".cu", ".inc")


def list_files(root, suffixes=CPP_SUFFIXES):
    """Paths relative to root: what git tracks or would track; without git, everything that is not hidden or built."""
    git = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if git.returncode == 0:
        names = [name for name in git.stdout.decode().split("\0") if name]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith(".") and f != "build"]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in names if n.endswith(tuple(suffixes)) and os.path.isfile(os.path.join(root, n)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as text:
        return text.read()


def read_revision(root, revision, suffixes):
    """Path -> text of the files of a revision with these suffixes, read from git. Without such a revision it raises
    subprocess.CalledProcessError."""
    archive = subprocess.run(["git", "-C", root, "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {file.name: files.extractfile(file).read().decode(errors="replace") for file in files
                if file.isfile() and file.name.endswith(suffixes)}


_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\ ]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def blank_comments_and_strings(text):
    """The same text with comments and literals replaced by spaces, so that line numbers stay; includes stay too."""

    def blank(match):
        found = match.group(0)
        if found.startswith('"'):
            line_start = text.rfind("\n", 0, match.start()) + 1
            if text[line_start:match.start()].strip().startswith("#"):
                return found
        if found.startswith("'") and match.start() > 0 and text[match.start() - 1].isalnum():
            return found  # 1'000'000
        return re.sub(r"[^\n]", " ", found)

    return _COMMENT_OR_STRING.sub(blank, text)
