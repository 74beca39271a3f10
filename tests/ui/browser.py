"""Chromium without a window, driven by Selenium: what a page says, how it looks, and what its console has said."""

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import wait_for

PICTURES = Path(os.environ.get("TXTOPO_PICTURES", "build/pictures"))
"""Where screenshots are written, to be looked at."""


@attrs.frozen
class Browser:
    """One window of Chromium."""

    driver: webdriver.Chrome

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, with the light or the dark scheme."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)
        self.driver.get(address)

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def script(self, text: str, *arguments: Any) -> Any:
        """Run JavaScript in the page; return its value."""
        return self.driver.execute_script(text, *arguments)

    def find(self, selector: str) -> WebElement:
        """Return the first element of a CSS selector, once it is there."""
        return wait_for(f"an element {selector}", lambda: next(iter(self.all(selector)), None))

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        """Return the text that an element shows; nothing while it is not there."""
        return self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def says(self, words: str, selector: str = "body", secs: float = 30.0) -> None:
        """Wait until an element shows these words."""
        try:
            wait_for(f"{selector} says {words!r}", lambda: words in self.text(selector), secs)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says:\n{self.text(selector)}") from None

    def rows(self) -> int:
        """Return how many rows the timeline has; 0 while its script has not begun, and the name is still the canvas'."""
        return self.script("return typeof gantt === 'undefined' ? 0 : gantt?.rows?.length ?? 0")

    def keys(self, *names: str) -> None:
        """Press keys, as a person without a mouse does."""
        self.driver.switch_to.active_element.send_keys(*names)

    def drag(self, element: WebElement, right: int, down: int) -> None:
        """Drag from the middle of an element."""
        ActionChains(self.driver).drag_and_drop_by_offset(element, right, down).perform()

    def picture(self, name: str, *, whole: bool = False) -> Path:
        """Write a screenshot of the window, or of the whole page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        options = {"captureBeyondViewport": True, "clip": self._whole()} if whole else {}
        data = self.command("Page.captureScreenshot", format="png", **options)["data"]
        path = PICTURES / f"{name}.png"
        path.write_bytes(base64.b64decode(data))
        return path

    def _whole(self) -> dict[str, float]:
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def complaints(self) -> list[str]:
        """Return what the console has said since the last call: errors and warnings, a refused script among them."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] in {"SEVERE", "WARNING"}]


PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core")
"""Debian's."""


def installed() -> tuple[str, str] | None:
    """Return the paths of a browser and its driver; None if one of them is not there."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    return None if binary is None or driver is None else (binary, driver)


def install() -> None:
    """Install Debian's Chromium if there is no browser, and if this process may."""
    if installed() is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        print("installing Chromium for the tests of the page", flush=True)
        for command in (("update",), ("install", "--yes", "--no-install-recommends", *PACKAGES)):
            done = subprocess.run(["apt-get", "--quiet", "--quiet", *command], stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                return  # the tests say what is missing


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium, and end it.

    Raises:
        FileNotFoundError: there is none, or no driver for it.
    """
    found = installed()
    if found is None:
        raise FileNotFoundError("there is no Chromium with chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location, driver = found
    for each in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield Browser(window)
    finally:
        window.quit()


if __name__ == "__main__":
    install()
