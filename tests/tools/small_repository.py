"""A repository of a few small files, for tests of tools that read revisions."""
import os
import subprocess


def git(root, *arguments):
    return subprocess.run(["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t", *arguments], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


def commit(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as output:
            output.write(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "state")
    return git(root, "rev-parse", "HEAD")
