"""Labels told by their addresses: those of the kernel alone, in a branch and elsewhere."""

from pathlib import Path

from analyzer.ir.numbered_labels import make_label_renamer
from analyzer.pipeline import load

TEXT = """\t.target\tsm_80
//--------------------- .text.first --------------------------
\t.section\t.text.first,"ax",@progbits
.text.first:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_7:
        /*0010*/              @!P0 BRA `(.L_x_7) ;
        /*0020*/                   EXIT ;
"""


def test_labels_of_the_kernel_become_addresses(tmp_path: Path) -> None:
    path = tmp_path / "k.txt"
    path.write_text(TEXT)
    (kernel,) = load(str(path)).module.kernels
    assert kernel.labels[-1] == (".L_x_7", 0x10)
    rename = make_label_renamer(kernel)
    assert rename(kernel.decode_form(1).text) == "@!P0 BRA 0x10"
    assert rename("MOV R2, 32@lo((first + .L_x_7@srel))") == "MOV R2, 32@lo((first + 0x10@srel))"
    assert rename("CALL.REL.NOINC `(.L_x_70)") == "CALL.REL.NOINC `(.L_x_70)"
    assert rename("BRA `($other)") == "BRA `($other)"
