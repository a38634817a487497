"""Artifacts come back as they were; damaged and foreign files are refused with one message."""

import contextlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_cases import N_SMS, make_samples, rise_by_waves

from analyzer.text.errors import InputError, UsageError
from analyzer.tuning.artifact import Artifact, load_artifact, pack_artifact, save_artifact
from analyzer.tuning.wave_model import fit


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return fit(make_samples(rise_by_waves, macros=((16, 16, 16), (32, 16, 16))), N_SMS).pack()


def rewrite(artifact: Artifact, **entries: bytes | np.ndarray | None) -> bytes:
    """Return the file with entries replaced by arrays or bytes, or left out."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(pack_artifact(artifact))) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            name = info.filename.removesuffix(".npy")
            value = entries.get(name, old.read(info))
            if isinstance(value, np.ndarray):
                data = io.BytesIO()
                np.lib.format.write_array(data, value)
                value = data.getvalue()
            if value is not None:
                new.writestr(info.filename, value)
    return made.getvalue()


def describe(artifact: Artifact, **changes: object) -> np.ndarray:
    text = msgspec.json.encode(msgspec.structs.replace(artifact.description, **changes))
    return np.frombuffer(text, dtype=np.uint8)


def test_an_artifact_comes_back(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "gemm.npz"
    size = save_artifact(artifact, path)
    found = load_artifact(path)
    assert found.description == artifact.description
    assert (found.coefficients == artifact.coefficients).all()
    assert (found.micro_table == artifact.micro_table).all()
    assert size == path.stat().st_size < 100_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["gemm.npz"]


def test_equal_artifacts_are_equal_files(artifact: Artifact) -> None:
    assert pack_artifact(artifact) == pack_artifact(artifact)


def test_numpy_alone_reads_it(artifact: Artifact, tmp_path: Path) -> None:
    save_artifact(artifact, tmp_path / "a.npz")
    code = "import numpy, sys\nwith numpy.load(sys.argv[1]) as f: print(f['coefficients'].shape, f['micro_table'].shape)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.npz")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(2, 5, 4) (2, 5, 3, 2)"


def test_the_chooser_loads_nothing_heavy() -> None:
    code = "from analyzer.tuning.chooser import Chooser\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert (
        not {"torch", "sklearn", "rich", "click", "lark", "joblib", "analyzer.hardware.gpu_database"} & names
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: rewrite(a, coefficients=None), "no artifact of tune"),
        (lambda a: rewrite(a, coefficients=a.coefficients.astype(np.float64)), "float32"),
        (lambda a: rewrite(a, coefficients=a.coefficients[:1]), "does not fit"),
        (lambda a: rewrite(a, coefficients=np.full_like(a.coefficients, np.nan)), "not finite"),
        (lambda a: rewrite(a, coefficients=np.array([{}], dtype=object)), "damaged"),
        (lambda a: rewrite(a, coefficients=b"\x93NUMPY\x01\x00\x10\x00" + b"x" * 16), "damaged"),
        (lambda a: rewrite(a, coefficients=b""), "damaged"),
        (lambda a: rewrite(a, micro_table=a.micro_table[:, :1]), "does not fit"),
        (lambda a: rewrite(a, micro_table=a.micro_table + np.uint32(7)), "not listed"),
        (lambda a: rewrite(a, micro_table=a.micro_table[:, :, ::-1]), "not in order"),
        (lambda a: rewrite(a, micro_table=a.micro_table * np.uint32(0)), "not in order"),
        (lambda a: rewrite(a, description=describe(a, schema="warplens/tune-artifact/9")), "schema"),
        (lambda a: rewrite(a, description=describe(a, macros=((1, 2),))), "parameters"),
        (lambda a: rewrite(a, description=describe(a, macros=((0, 2, 3), (4, 5, 6)))), "out of range"),
        (lambda a: rewrite(a, description=describe(a, n_sms=0)), "0 SMs"),
        (lambda a: rewrite(a, description=np.frombuffer(b"[" * 90_000, np.uint8)), "cannot be read"),
        (lambda a: pack_artifact(a)[:-40], "damaged"),
        (lambda a: b"PK\x03\x04", "damaged"),
        (lambda a: b"", "damaged"),
        (lambda a: b"kernel,gpu\n", "damaged"),
    ],
)
def test_damaged_and_foreign_files_are_refused(artifact: Artifact, tmp_path: Path, change, message) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.npz"
    path.write_bytes(change(artifact))
    with pytest.raises(InputError, match=message):
        load_artifact(path)


def test_a_description_that_maps_unknown_inputs_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    space = msgspec.structs.replace(artifact.description.space, inputs=("m", "n"))
    (tmp_path / "a.npz").write_bytes(rewrite(artifact, description=describe(artifact, space=space)))
    with pytest.raises(InputError, match="an input that the kernel does not have"):
        load_artifact(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["", "other"])
def test_a_loop_over_an_input_that_does_not_exist_is_refused(
    artifact: Artifact, tmp_path: Path, name: str
) -> None:
    space = artifact.description.space
    space = msgspec.structs.replace(space, loop=msgspec.structs.replace(space.loop, input=name))
    (tmp_path / "a.npz").write_bytes(rewrite(artifact, description=describe(artifact, space=space)))
    with pytest.raises(InputError, match="an input that the kernel does not have"):
        load_artifact(tmp_path / "a.npz")


def test_a_header_does_not_take_the_memory_that_it_claims(artifact: Artifact, tmp_path: Path) -> None:
    header = io.BytesIO()
    claim = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4)}
    np.lib.format.write_array_header_1_0(header, claim)
    (tmp_path / "a.npz").write_bytes(rewrite(artifact, coefficients=header.getvalue()))
    with pytest.raises(InputError, match="size is not what its header says"):
        load_artifact(tmp_path / "a.npz")


def test_an_entry_that_unpacks_to_much_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("coefficients", "micro_table", "description"):
            archive.writestr(f"{name}.npy", b"\0" * (65 << 20))
    (tmp_path / "bomb.npz").write_bytes(made.getvalue())
    with pytest.raises(InputError, match="larger than"):
        load_artifact(tmp_path / "bomb.npz")


def test_missing_files_and_folders_are_one_message(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_artifact(tmp_path / "none.npz")
    with pytest.raises(UsageError, match="cannot write"):
        save_artifact(artifact, tmp_path / "none" / "a.npz")


@given(data=st.data())
def test_flipped_bytes_raise_nothing_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = bytearray(PACKED)
    for _ in range(data.draw(st.integers(1, 4))):
        made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    path.write_bytes(bytes(made))
    with contextlib.suppress(InputError):
        load_artifact(path)


PACKED = pack_artifact(fit(make_samples(rise_by_waves), N_SMS).pack())
