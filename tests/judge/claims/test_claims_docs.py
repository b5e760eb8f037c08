from tandem.judge.claims.register import read_register


def test_the_page_has_every_claim_as_the_register_has_it(root):
    page = (root / "docs" / "measurement.md").read_text()
    for claim in read_register().claim:
        classes = ", ".join(claim.classes) or ("all" if claim.metrics else "-")
        row = f"| {claim.id} | {claim.text} | {classes} | {claim.confirms} |"
        assert row in page.splitlines(), row
