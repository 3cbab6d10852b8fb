"""How fast each path is beside a peer's, and beside what the machine allows; see README.md beside this folder."""
