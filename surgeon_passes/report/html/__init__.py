"""One page: data, a style and a script that draws it, in one file that needs no network."""
