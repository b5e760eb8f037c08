"""A verdict for a terminal, and as one self-contained page, with its charts as pictures.

Invariant: the page shows the content of verdict.json and judges nothing; omitted rows are counted,
and the page names the file that has them. Values from records are shown as text, never as markup.
"""
