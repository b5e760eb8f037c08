"""What `make first-minute` runs in, and shows of a failure; its commands take minutes."""

from __future__ import annotations

import first_minute


def test_a_clone_sees_neither_this_checkout_nor_this_home(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{first_minute.ROOT / '.venv/bin'}:/usr/bin")
    monkeypatch.setenv("MAKEFLAGS", "j")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/own.pem")

    variables = first_minute.build_variables(tmp_path)

    assert variables["PATH"] == "/usr/bin"
    assert variables["HOME"] == str(tmp_path)
    assert variables["PIP_CERT"] == "/etc/ssl/own.pem"
    assert {"MAKEFLAGS", "XDG_CACHE_HOME"} & set(variables) == set()


def test_a_failed_command_keeps_its_seconds_and_shows_its_code(tmp_path, capsys):
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "Makefile").write_text("test:\n\t@echo one test failed; exit 3\n")

    figures = first_minute.run_target(clone, "test", {"PATH": "/usr/bin:/bin"})

    assert figures.seconds > 0
    assert "exit code 2" in figures.format_row()
    assert "one test failed" in capsys.readouterr().err
