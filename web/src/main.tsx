import { render } from "preact";
import { takeCapability } from "./host/api";
import { Shell } from "./shell";

takeCapability();
addEventListener("hashchange", () => {
  takeCapability();
});
const theme = localStorage.getItem("millrace.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
render(<Shell />, document.getElementById("app")!);
