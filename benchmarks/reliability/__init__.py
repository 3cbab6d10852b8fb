"""What a store promises, put to the test; see README.md beside this folder."""
