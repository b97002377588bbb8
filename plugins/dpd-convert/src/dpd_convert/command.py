"""What of a worker's command and arguments is a vLLM command line."""

from __future__ import annotations

from pathlib import PurePosixPath

from .conversion import Conversion

_MODULE = "vllm.entrypoints.openai.api_server"


def shared_words(conversion: Conversion) -> list[str]:
    """Return the arguments of vLLM that both roles share; write the folder of its program."""
    command = [str(word) for word in conversion.get("worker.command") or []]
    words = [*command, *(str(word) for word in conversion.get("worker.args") or [])]
    program = words[0] if words else ""
    if PurePosixPath(program).name == "vllm" and words[1:2] == ["serve"]:
        _write_folder(conversion, program)
        return words[2:]
    if PurePosixPath(program).name.startswith("python") and words[1:3] == ["-m", _MODULE]:
        _write_folder(conversion, program)
        return words[3:]
    if not command:
        return words
    reason = "the chart runs vllm serve"
    conversion.leave("worker.command", command, reason)
    if any(PurePosixPath(word).name in ("sh", "bash") for word in command):
        reason = "a script and no flags; write vLLM's flags in engines.args and model"
        conversion.leave("worker.args", words[len(command) :], reason)
        return []
    return words[len(command) :]


def _write_folder(conversion: Conversion, program: str) -> None:
    """Write where the image has its programs, when the command says it."""
    if "/" in program:
        conversion.set("image.binDir", str(PurePosixPath(program).parent))
