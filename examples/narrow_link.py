"""See what a narrow link costs, and what recipes save on it: hosts are network namespaces of this machine.

sudo python narrow_link.py             (Linux, with ip and tc)
"""

import isthmus
from isthmus.testbed import Testbed, run_on_hosts

isthmus.partition("synthetic:flickr@0.05", 2, out="parts", overwrite=True, quiet=True)
asked = ["--model", "sage", "--hidden", "64", "--steps", "20", "--eval-every", "20", "--quiet"]

for recipe in ("vanilla", "exact", "isthmus"):
    with Testbed(hosts=2, rate="20mbit") as bed:  # gone with the block, whatever happens in it
        run = f"narrow-{recipe}"
        run_on_hosts(bed, ["isthmus", "train", "parts", "--recipe", recipe, "--out", run, *asked])
