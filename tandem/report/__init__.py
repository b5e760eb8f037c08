"""A verdict for a terminal, and as one page that needs nothing but itself, with its charts as pictures.

Invariant: the page says what verdict.json says and judges nothing; what it does not show it counts, and names the file
that has it. Whatever comes from records is text.
"""
