"""python -m isthmus"""

import os
import sys

if __name__ == "__main__":
    # `python -m` looks into the working folder first, where a queue.py would be taken for Python's own.
    if sys.path[:1] == [os.getcwd()]:
        sys.path.append(sys.path.pop(0))

    from isthmus.cli import main

    main()
