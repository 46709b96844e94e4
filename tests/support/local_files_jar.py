"""Makes a JAR with which Hadoop in Spark creates local files without a process for each.

Usage: ``local_files_jar.py FILE``. On the class path it configures Hadoop as well.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

_SOURCE = Path(__file__).with_name("LocalFiles.java")
_CONFIGURATION = """\
<configuration>
  <property>
    <name>fs.file.impl</name>
    <value>backfill.tests.LocalFiles</value>
  </property>
</configuration>
"""


def main(jar: Path) -> None:
    """Makes the JAR."""
    classes = f"{Path(pyspark.__file__).parent}/jars/*"
    with tempfile.TemporaryDirectory(dir=jar.parent) as directory:
        compiled, made = Path(directory, "classes"), Path(directory, "made.jar")
        subprocess.run(["javac", "-nowarn", "-cp", classes, "-d", compiled, _SOURCE], check=True)
        with zipfile.ZipFile(made, "w") as files:
            files.writestr("core-site.xml", _CONFIGURATION)
            for each in compiled.rglob("*.class"):
                files.write(each, each.relative_to(compiled))
        made.replace(jar)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
