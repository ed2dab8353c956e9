"""A container's image: a directory of a few of this machine's files, laid out as Debian does it."""
import os
import re
import shutil
import subprocess
import sys
import sysconfig

LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Image:
    def __init__(self, path, library):
        """`library`: what the image has all libraries of, as any has those of glibc."""
        self.path = path
        for folder in ("usr/bin", LIBRARIES, "usr/lib64", "proc", "sys", "dev", "run", "tmp", "etc"):
            os.makedirs(os.path.join(path, folder))
        for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            os.symlink(target, os.path.join(path, link))
        self.put_libraries_of(library)

    def put(self, program, folder="usr/bin"):
        os.makedirs(os.path.join(self.path, folder), exist_ok=True)
        shutil.copy(program, os.path.join(self.path, folder))
        self.put_libraries_of(program)

    def put_libraries_of(self, path):
        text = subprocess.run(["ldd", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for library in re.findall(r"(?:=> )?(/\S+)", text):
            folder = "usr/lib64" if "ld-linux" in library else LIBRARIES
            shutil.copy(library, os.path.join(self.path, folder))

    def put_python(self):
        """This interpreter, in its own place. Returns its path; its library is to be mounted at the paths returned."""
        python, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
        self.put(python, os.path.dirname(python).lstrip("/"))
        extensions = os.path.join(library, "lib-dynload")
        for name in os.listdir(extensions):
            if name.startswith("_ctypes."):
                self.put_libraries_of(os.path.join(extensions, name))
        os.makedirs(self.path + library, exist_ok=True)
        return python, library
