"""`python -m tandem` is the `tandem` command."""

import sys

from tandem.cli.program import main

sys.exit(main())
