"""A model hub on 127.0.0.1: repositories of a folder, as the official client requests them."""
