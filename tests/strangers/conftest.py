"""Makes the shared parts of this folder importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for `cases` and `made`
