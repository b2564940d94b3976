// What is this browser's alone, and not part of a finding: dark or light, the zone of times; and what leaves the page as a file.

import * as api from "./api.js";
import { isDark } from "./colours.js";
import { plain } from "./text.js";
import { useLocalZone, zoneName } from "./time.js";

const $ = (id) => document.getElementById(id);

export function startSettings({ repaint, exportQuery, locked, say }) {
  startTheme(repaint);
  startZone(repaint);
  startExport(exportQuery, locked, say);
}

function startTheme(repaint) {
  const chosen = localStorage.getItem("waybill-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
  const name = () => { $("theme").textContent = isDark() ? "Light" : "Dark"; };
  $("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("waybill-theme", theme);
    name();
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    name();
    repaint();
  });
  name();
}

function startZone(repaint) {
  const use = (local) => {
    useLocalZone(local);
    $("zone").textContent = zoneName();
    $("zone").setAttribute("aria-label", `Times are in ${zoneName()}`);
  };
  use(localStorage.getItem("waybill-zone") === "local");
  $("zone").addEventListener("click", () => {
    const local = localStorage.getItem("waybill-zone") !== "local";
    localStorage.setItem("waybill-zone", local ? "local" : "utc");
    use(local);
    repaint();
  });
}

function startExport(query, locked, say) {
  const menu = $("export");
  menu.addEventListener("toggle", () => {
    if (menu.open) $("export-what").textContent = `Of what the filters show: ${$("count").textContent}.`;
  });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
  menu.querySelectorAll("[data-format]").forEach((button) => button.addEventListener("click", async () => {
    menu.open = false;
    const { format } = button.dataset;
    try {
      save(await api.blob(`/api/export?format=${format}&${query()}`), format);
      say("The file is saved.");
    } catch (error) {
      if (error instanceof api.Locked) locked();
      else say(`The export failed: ${plain(error.message)}`);
    }
  }));
}

function save(content, format) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  const time = new Date().toISOString().slice(0, 19).replaceAll(":", "");
  link.download = { json: `waybill-trace-${time}.json`, csv: `waybill-sessions-${time}.csv`, "processes-csv": `waybill-programs-${time}.csv` }[format];
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10e3);
}
