"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function tell(message) {
    const place = document.getElementById("trouble");
    place.textContent = message;
    place.hidden = false;
    root.dataset.settled = "true";
  }

  // What goes wrong is kept on the page itself, where a test or a curious reader finds it.
  function record(message) {
    root.dataset.errors = (root.dataset.errors ? root.dataset.errors + "\n" : "") + message;
  }
  addEventListener("error", (event) => record(event.message));
  addEventListener("unhandledrejection", (event) => record(String(event.reason)));
  addEventListener("securitypolicyviolation", (event) => record(`blocked: ${event.violatedDirective}`));

  async function inflate(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Inserted as text, so that the content policy knows it by its hash.
  async function load() {
    const script = document.createElement("script");
    script.textContent = await inflate(document.getElementById("plotly").textContent);
    document.head.append(script);
    if (!window.Plotly) throw new Error("Plotly did not load");
  }

  function colours() {
    const style = getComputedStyle(root);
    return Object.fromEntries(["paper", "card", "ink", "muted", "line", "sans"].map(
      (name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function axis(own, c) {
    return {
      gridcolor: c.line, linecolor: c.line, zerolinecolor: c.line, zeroline: false, automargin: true,
      separatethousands: true, exponentformat: "none",
      ...own, tickfont: { color: c.muted }, title: { standoff: 8, ...own?.title, font: { color: c.muted, size: 12 } },
    };
  }

  function layout(own) {
    const c = colours();
    const narrow = innerWidth < 640;
    return {
      margin: { t: 12, b: 44, l: narrow ? 8 : 24, r: 12 },
      ...own,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: c.sans, size: 12, color: c.ink },
      hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { color: c.ink, family: c.sans, size: 12 }, align: "left" },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", font: { color: c.ink } },
      xaxis: axis(own.xaxis, c),
      yaxis: axis(own.yaxis, c),
      ...Object.fromEntries(Object.keys(own).filter((name) => /^yaxis\d+$/.test(name))
        .map((name) => [name, axis(own[name], c)])),
      modebar: { bgcolor: "rgba(0,0,0,0)", color: c.line, activecolor: c.muted },
      dragmode: narrow ? false : "zoom",
    };
  }

  // Boxes carry white text on either ground; thin lines and points need more light on a dark one.
  function lit(colour) {
    if (!dark.matches) return colour;
    return "#" + colour.slice(1).match(/../g).map((part) =>
      Math.round(0.6 * parseInt(part, 16) + 0.4 * 255).toString(16).padStart(2, "0")).join("");
  }

  function themed(data) {
    const c = colours();
    return data.map((trace) => {
      if (trace.type === "icicle") return {
        ...trace,
        marker: { colors: [c.card, ...trace.marker.colors.slice(1)], line: { color: c.paper, width: 1 } },
        insidetextfont: { color: trace.labels.map((_, i) => i ? "#fff" : c.ink) },
      };
      if (trace.type === "bar") return trace;
      return {
        ...trace,
        ...trace.marker && { marker: { ...trace.marker, color: lit(trace.marker.color) } },
        ...trace.line && { line: { ...trace.line, color: lit(trace.line.color) } },
        ...trace.error_x && { error_x: { ...trace.error_x, color: lit(trace.error_x.color) } },
        ...trace.error_y && { error_y: { ...trace.error_y, color: lit(trace.error_y.color) } },
      };
    });
  }

  async function draw() {
    if (!("DecompressionStream" in window)) {
      tell("The plots need a browser of 2023 or later (Chrome 80, Firefox 113, Safari 16.4). The tables show the same numbers.");
      return;
    }
    await load();
    const figures = JSON.parse(document.getElementById("figures").textContent);
    const places = [...document.querySelectorAll(".plot")];
    const config = { displaylogo: false, responsive: false, modeBarButtons: [["toImage"]] };
    const paint = (place, figure) => Plotly.react(place, themed(figure.data), layout(figure.layout), config);
    const repaint = () => places.forEach((place, i) => place.dataset.drawn && paint(place, figures[i]));

    // Follows the window, and a plot in a folded part is drawn when it is first unfolded.
    const watch = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => {
      const width = Math.round(contentRect.width);
      if (!width || target.dataset.drawn === String(width)) return;
      target.dataset.drawn = String(width);
      paint(target, figures[places.indexOf(target)]).then(() => {
        Plotly.Plots.resize(target);
        root.dataset.settled = places.every((place) => !place.dataset.drawn || place.querySelector("svg"));
      });
    }));
    places.forEach((place) => watch.observe(place));
    if (!places.length) root.dataset.settled = "true";

    dark.addEventListener("change", repaint);
    addEventListener("beforeprint", () => {
      document.querySelectorAll("details.section").forEach((part) => { part.open = true; });
      repaint();
    });
    addEventListener("afterprint", repaint);
  }

  draw().catch((error) => {
    record(String(error));
    tell("The plots could not be drawn. The tables show the same numbers.");
  });
})();
