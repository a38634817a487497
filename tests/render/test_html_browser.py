"""HTML pages in a real browser: every part is clicked through, with no error, no request and no markup of inputs."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_reports import (
    HOSTILE,
    make_check_report,
    make_diff_report,
    make_hostile,
    make_large_report,
    make_library_report,
    make_matmul_report,
)

from analyzer.render.registry import render_report

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
PHONE, DESKTOP = {"width": 390, "height": 780}, {"width": 1280, "height": 800}


class Visit:
    """A page of a report in the browser; errors, dialogs and requests beyond its own file are collected."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options})
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", self._note_request)
        self.address = path.as_uri()
        self.page.goto(self.address)

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.faults.append(f"request of {request.url}")

    def go(self, place: str) -> None:
        self.page.evaluate("place => { location.hash = place }", place)
        self.page.wait_for_function("place => location.hash === place", arg=place)

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).inner_text()
        return found

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pages")
    reports = {
        "matmul": make_matmul_report(),
        "library": make_library_report(),
        "large": make_large_report(),
        "diff": make_diff_report(),
        "check": make_check_report(),
        "hostile-diff": make_hostile(make_diff_report()),
        "hostile-check": make_hostile(make_check_report()),
        "hostile": make_hostile(make_matmul_report()),
        "hostile-library": make_hostile(make_library_report()),
    }
    for name, report in reports.items():
        (found / f"{name}.html").write_text(render_report(report, "html"), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def matmul(browser: Any, folder: Path) -> Iterator[Visit]:
    visit = Visit(browser, folder / "matmul.html")
    yield visit
    visit.close()


def count_rows(visit: Visit) -> int:
    """Return the number of instructions that the listing says it shows."""
    return int(visit.text(".listing-count").split()[0].replace(",", ""))


def test_tabs_by_mouse_and_keyboard(matmul: Visit) -> None:
    page = matmul.page
    matmul.go("#/0")
    for name in ("Loops", "Control flow", "Listing", "Memory", "What if", "Basis", "Overview"):
        page.get_by_role("tab", name=name).click()
        panels = page.locator("[role=tabpanel]:visible")
        assert panels.count() == 1
        assert panels.get_attribute("aria-labelledby") == page.get_by_role("tab", name=name).get_attribute(
            "id"
        )
    for key, panel in (("Right", "loops"), ("Left", "overview"), ("Left", "basis"), ("Right", "overview")):
        page.keyboard.press(f"Arrow{key}")
        page.wait_for_selector(f"#panel-{panel}:visible")


def test_choosing_a_gpu_changes_the_figures(matmul: Visit) -> None:
    matmul.go("#/0/overview")
    first, second = make_matmul_report().kernels[0].predictions
    big = "#panel-overview .big:visible"
    assert matmul.text(big) == f"{first.time_us:.1f}"
    matmul.page.select_option("#view", label=second.gpu_name)
    assert matmul.text(big) == f"{second.time_us:.1f}"
    assert second.bound in matmul.text("#panel-overview .chip:visible")
    matmul.page.select_option("#view", label=first.gpu_name)
    assert matmul.text(big) == f"{first.time_us:.1f}"


def test_roofline_has_ceilings_and_the_kernel(matmul: Visit) -> None:
    matmul.go("#/0/overview")
    labels = " ".join(matmul.page.locator(".roofline:visible svg text").all_text_contents())
    found = make_matmul_report().kernels[0].predictions[0].speed_of_light
    assert found is not None
    assert len(found.memory) == 2
    slopes = [f"{level.level} {level.peak_gbps:,.0f} GB/s" for level in found.memory]
    for ceiling in (*slopes, "FP16 tensor 989 TFLOP/s", "L1", "alu"):
        assert ceiling in labels
    points = matmul.page.locator(".roofline:visible .pt.here")
    assert points.count() == 3  # by bytes of L1, L2 and DRAM
    box = matmul.page.locator(".roofline:visible svg").bounding_box()
    assert box is not None
    for index in range(3):
        at = points.nth(index).bounding_box()
        assert at is not None
        assert box["x"] < at["x"] < box["x"] + box["width"]
        assert box["y"] < at["y"] < box["y"] + box["height"]
    matmul.page.select_option(".roofline:visible select", "instructions")
    assert "issue slots" in " ".join(matmul.page.locator(".roofline:visible svg text").all_text_contents())
    matmul.page.select_option(".roofline:visible select", "flops")


def test_block_opens_its_instructions(matmul: Visit) -> None:
    matmul.go("#/0/flow")
    kernel = make_matmul_report().kernels[0]
    nodes = matmul.page.locator(".cfg .node")
    assert nodes.count() == len(kernel.counts.blocks)
    header = kernel.loops[0].header
    matmul.page.locator(f'.cfg .node[aria-label^="block 0x{header:04x}"]').click()
    assert matmul.page.locator("#panel-listing").is_visible()
    assert matmul.text(".row.is-current .c-addr") == f"0x{header:04x}"


def test_search_and_filters(matmul: Visit) -> None:
    matmul.go("#/0/listing")
    page, listing = matmul.page, make_matmul_report().kernels[0].listing
    assert count_rows(matmul) == len(listing)
    page.keyboard.press("/")
    page.keyboard.type("hgmma")
    assert count_rows(matmul) == sum("HGMMA" in entry.instruction for entry in listing)
    assert page.locator(".row mark").first.inner_text() == "HGMMA"
    page.keyboard.press("Escape")
    page.select_option("[data-filter=pipe]", "tensor")
    assert count_rows(matmul) == sum(entry.pipe == "tensor" for entry in listing)
    page.select_option("[data-filter=pipe]", "")
    page.select_option("[data-filter=stall]", "barrier")
    assert 0 < count_rows(matmul) < len(listing)
    page.select_option("[data-filter=stall]", "")
    header = make_matmul_report().kernels[0].loops[0].header
    page.select_option("[data-filter=loop]", str(header))
    assert count_rows(matmul) == sum(header in entry.loops for entry in listing)
    page.select_option("[data-filter=loop]", "")
    assert count_rows(matmul) == len(listing)


def test_from_a_stall_to_its_producer_and_back(matmul: Visit) -> None:
    page, listing = matmul.page, make_matmul_report().kernels[0].listing
    waiter = max((entry for entry in listing if entry.producer is not None), key=lambda entry: entry.share)
    matmul.go(f"#/0/listing/0x{waiter.address:04x}")
    assert matmul.text(".row.is-current .c-addr") == f"0x{waiter.address:04x}"
    page.locator(".details a", has_text=f"0x{waiter.producer:04x}").first.click()
    page.wait_for_selector(".row.is-current")
    assert matmul.text(".row.is-current .c-addr") == f"0x{waiter.producer:04x}"
    assert f"0x{waiter.address:04x}" in matmul.text(".details")  # waits for it
    page.go_back()
    page.wait_for_function(
        "address => document.querySelector('.row.is-current .c-addr').textContent === address",
        arg=f"0x{waiter.address:04x}",
    )
    page.locator("[data-listing]").focus()
    page.keyboard.press("ArrowDown")
    assert matmul.text(".row.is-current .c-addr") == f"0x{waiter.address + 16:04x}"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "address => document.querySelector('.row.is-current .c-addr')?.textContent === address",
        arg=f"0x{waiter.producer:04x}",
    )


def test_listing_holds_only_rows_in_sight(matmul: Visit) -> None:
    matmul.go("#/0/listing")
    page, listing = matmul.page, make_matmul_report().kernels[0].listing
    page.locator("[data-listing]").focus()
    page.keyboard.press("End")
    assert matmul.text(".row.is-current .c-addr") == f"0x{listing[-1].address:04x}"
    assert page.locator(".row.is-current").is_visible()
    assert page.locator(".row").count() < 150
    page.keyboard.press("Home")
    assert matmul.text(".row.is-current .c-addr") == "0x0000"


def test_thousands_of_instructions_scroll_and_are_searched(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder / "large.html")
    listing = make_large_report().kernels[0].listing
    visit.go("#/0/listing")
    visit.page.wait_for_selector(".row")
    assert count_rows(visit) == len(listing)
    visit.page.locator("[data-listing]").focus()
    visit.page.keyboard.press("End")
    assert visit.text(".row.is-current .c-addr") == f"0x{listing[-1].address:04x}"
    visit.page.fill(".listing-search", "HGMMA R29")
    assert visit.page.locator(".row").count() < 150
    assert count_rows(visit) == sum(
        "HGMMA" in entry.instruction and "R29" in entry.instruction for entry in listing
    )
    visit.close()


def test_sliders_redraw_from_the_points(matmul: Visit) -> None:
    matmul.go("#/0/whatif")
    page, kernel = matmul.page, make_matmul_report().kernels[0]
    curve = next(
        one for one in kernel.hardware_curves if one.key == "l2.bandwidth_gbps" and one.gpu == "h100-sxm"
    )
    slider = page.get_by_label("L2 bandwidth")
    slider.focus()
    for point in curve.points[curve.points.index(next(p for p in curve.points if p.factor == 1)) + 1 :]:
        page.keyboard.press("ArrowRight")
        assert matmul.text("[data-whatif-result] .big") == f"{point.time_us:.1f}"
        assert point.bound in matmul.text("[data-whatif-result] .chip")
    assert page.locator("[data-whatif-result] .stack").count() == 2
    other = page.get_by_label("DRAM bandwidth")
    other.focus()
    page.keyboard.press("ArrowLeft")
    assert slider.input_value() == "1"  # back at the GPU as it is
    assert "0.5)" in matmul.text(".slider.is-moved output")


def test_dark_and_light(matmul: Visit) -> None:
    matmul.go("#/0/overview")
    page = matmul.page

    def find_lightness() -> int:
        color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(", ")))

    light = find_lightness()
    page.click("#theme")
    assert find_lightness() < 150 < light
    page.emulate_media(color_scheme="dark")
    page.click("#theme")
    assert find_lightness() == light
    page.emulate_media(color_scheme="light")


def test_print_shows_every_part(matmul: Visit) -> None:
    matmul.go("#/0/overview")
    page = matmul.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(24, 27, 32)"
    assert page.locator("#panel-loops").is_visible()
    assert page.locator("#panel-memory").is_visible()
    assert not page.locator(".tabs").is_visible()
    page.emulate_media(media="screen", color_scheme="light")


@pytest.mark.parametrize("name", ["matmul", "library"])
def test_phone_scrolls_in_one_direction(browser: Any, folder: Path, name: str) -> None:
    visit = Visit(browser, folder / f"{name}.html", viewport=PHONE)
    tabs = ("overview", "loops", "flow", "listing", "memory", "whatif", "basis")
    for place in ("#/", *(f"#/0/{tab}" for tab in tabs)):
        visit.go(place)
        visit.page.wait_for_selector("h1:visible")
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], place
    visit.close()


def test_index_of_kernels(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder / "library.html")
    page, kernels = visit.page, make_library_report().kernels
    rows = page.locator("#index-table tbody tr:visible")
    assert rows.count() == len(kernels)
    longest = max(kernels, key=lambda kernel: kernel.predictions[0].time_us)
    assert longest.demangled in rows.first.inner_text()
    page.locator("#index-table th", has_text="Registers").click()
    most = max(kernel.registers or 0 for kernel in kernels)
    assert rows.first.locator("td").nth(5).inner_text() == str(most)
    page.locator("#index-table th", has_text="Kernel").click()
    assert rows.first.locator("td").first.inner_text() == min(kernel.demangled for kernel in kernels)
    page.keyboard.press("/")
    page.keyboard.type("conv2d")
    assert rows.count() == 2
    rows.first.locator("a").click()
    page.wait_for_selector(".kernel h1")
    assert visit.text(".kernel h1") == "conv2d_3x3"
    page.get_by_role("tab", name="Listing").click()
    assert page.locator(".row").count() > 20
    page.get_by_role("link", name="All kernels").click()
    page.wait_for_selector("#index:visible")
    assert page.locator(".pt").count() > 5
    visit.close()


@pytest.mark.parametrize("name", ["hostile", "hostile-library"])
def test_hostile_texts_stay_texts(browser: Any, folder: Path, name: str) -> None:
    visit = Visit(browser, folder / f"{name}.html")
    page = visit.page
    shown = HOSTILE.replace("\u2028", "\\u2028")
    for tab in ("overview", "loops", "flow", "listing", "memory", "whatif", "basis"):
        visit.go(f"#/0/{tab}")
        page.wait_for_selector(".kernel h1")
    assert visit.text(".kernel h1").endswith(shown)
    visit.go("#/0/listing/0x0010")
    page.wait_for_selector(".row.is-current")
    assert shown in visit.text(".details .sass")
    assert page.title().startswith(page.locator(".kernel h1").text_content())
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    scripts = page.locator("script:not([type])").count()
    assert scripts == 1
    visit.close()


def test_diff_opens_kernels_and_narrows_listings(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder / "diff.html")
    page, kernels = visit.page, make_diff_report().kernels
    page.locator("table a", has_text=kernels[-1].demangled).first.click()
    details = page.locator(f"#k{len(kernels) - 1}")
    details.wait_for(state="visible")
    assert details.get_attribute("open") is not None
    rows = details.locator(".aligned .row")
    assert rows.count() > 10
    changed = details.locator(".aligned .row:not(.k-equal)").count()
    assert 0 < changed <= rows.count()
    details.get_by_label("only what differs").check()
    assert details.locator(".aligned .row:not(.k-equal)").count() >= min(changed, 10)
    page.fill("#diff-search", kernels[0].demangled)
    assert page.locator("tr[data-verdict]:visible").count() == 1
    page.fill("#diff-search", "")
    page.select_option("#diff-pick", kernels[0].verdict.value)
    wanted = sum(kernel.verdict is kernels[0].verdict for kernel in kernels)
    assert page.locator("tr[data-verdict]:visible").count() == wanted
    visit.close()


@pytest.mark.parametrize("name", ["diff", "check", "hostile-diff", "hostile-check"])
def test_comparisons_on_a_phone(browser: Any, folder: Path, name: str) -> None:
    visit = Visit(browser, folder / f"{name}.html", viewport=PHONE)
    visit.page.wait_for_selector("h1")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert visit.page.evaluate("window.pwned") is None
    assert visit.page.locator("img").count() == 0
    visit.close()


def test_policy_stops_what_a_page_should_not_run(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder / "matmul.html")
    visit.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 3';"
        " document.body.append(s); const i = new Image(); i.src = 'https://example.invalid/x.png'; }"
    )
    visit.page.wait_for_timeout(100)
    assert visit.page.evaluate("window.pwned") is None
    assert len([fault for fault in visit.faults if "Content Security Policy" in fault]) == 2, visit.faults
    visit.faults.clear()
    visit.close()
