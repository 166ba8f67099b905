// Draws the figures of the report. Text in the data is already escaped for plotly.
(() => {
  "use strict";
  const { figures, scores } = JSON.parse(document.getElementById("report-data").textContent);
  const font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: "#1c2733" };
  const axis = { gridcolor: "#e8ecf0", zerolinecolor: "#c9d0d8", linecolor: "#c9d0d8", automargin: true, title: { standoff: 8, font: { ...font, size: 13 } } };
  const hoverlabel = { bgcolor: "#ffffff", bordercolor: "#aeb8c4", font, align: "left", namelength: -1 };
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "png", scale: 2 },
  };
  const hidden = new Set();
  const chosen = scores.panels.map(() => ({ x: 0, y: 1 }));
  const webgl = (() => {
    try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; }
  })();

  function layoutWith(layout) {
    return {
      font, hoverlabel, hovermode: "closest", dragmode: "zoom", margin: { l: 56, r: 12, t: 28, b: 48 },
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: false,
      legend: { orientation: "h", y: -0.25, yanchor: "top" },
      ...layout, xaxis: { ...axis, ...layout.xaxis, title: { ...axis.title, ...layout.xaxis.title } },
      yaxis: { ...axis, ...layout.yaxis, title: { ...axis.title, ...layout.yaxis.title } },
    };
  }

  function trace(set, index, coordinates, panel, x, y) {
    const title = set.ids ? "<b>%{customdata}</b>" : "<b>row %{customdata}</b>";
    const label = set.texts ? "%{text}" : set.values ? "%{marker.color:.4~g}" : set.label;
    const axes = panel.strips ? "%{x:.3~g}" : "%{x:.3~g}, %{y:.3~g}";
    return {
      type: panel.webgl && webgl ? "scattergl" : "scatter", mode: "markers", name: set.label,
      x: coordinates[x], y: coordinates[y], customdata: set.ids || set.rows, text: set.texts,
      visible: !hidden.has(index), hovertemplate: `${title}<br>${label}<br>${axes}<extra></extra>`,
      marker: {
        symbol: set.symbol, size: set.size, opacity: set.opacity,
        ...(set.values ? { color: set.values, colorscale: "Viridis" } : { color: set.color }),
        line: { width: set.symbol.includes("open") ? 1.2 : 0, color: set.color || undefined },
      },
    };
  }

  function panelFigure(number) {
    const panel = scores.panels[number];
    const { x, y } = chosen[number];
    const data = scores.order.map((index) => trace(scores.sets[index], index, panel.coordinates[index], panel, x, y));
    const lanes = scores.sets.length - 1;
    const yaxis = panel.strips
      ? { tickvals: scores.sets.map((_, index) => lanes - index), ticktext: scores.sets.map((set) => set.short),
          range: [-0.6, lanes + 0.6], showgrid: false, zeroline: false }
      : { title: { text: panel.axes[y] } };
    return [data, layoutWith({ xaxis: { title: { text: panel.axes[x] } }, yaxis })];
  }

  const panelElement = (number) => document.getElementById(`panel-${number}`);
  const drawnPanels = scores.panels.map((_, number) => number).filter((number) => panelElement(number));

  // Show the same row in the other panels: all panels hold the same sets in the same order.
  function linkHover(number) {
    const others = drawnPanels.filter((other) => other !== number).map(panelElement);
    panelElement(number).on("plotly_hover", ({ points: [{ curveNumber, pointNumber }] }) => {
      for (const element of others) {
        const { type, x, y } = element._fullData[curveNumber];
        // WebGL traces look up points by position, the others by index.
        const same = type === "scattergl" ? { xval: x[pointNumber], yval: y[pointNumber] } : { pointNumber };
        Plotly.Fx.hover(element, [{ curveNumber, ...same }]);
      }
    });
    panelElement(number).on("plotly_unhover", () => others.forEach((element) => Plotly.Fx.unhover(element)));
  }

  function showSets() {
    document.querySelectorAll("[data-set]").forEach((button) => {
      button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.set))));
    });
    const visible = scores.order.map((index) => !hidden.has(index));
    return Promise.all(drawnPanels.map((number) => Plotly.restyle(panelElement(number), { visible })));
  }

  function listen() {
    document.querySelectorAll("[data-set]").forEach((button) => {
      const index = Number(button.dataset.set);
      button.addEventListener("click", () => {
        if (!hidden.delete(index)) hidden.add(index);
        showSets();
      });
      button.addEventListener("dblclick", () => {
        const alone = hidden.size === scores.sets.length - 1 && !hidden.has(index);
        scores.sets.forEach((_, other) => (alone || other === index ? hidden.delete(other) : hidden.add(other)));
        showSets();
      });
    });
    document.querySelectorAll("select[data-panel]").forEach((select) => {
      select.addEventListener("change", () => {
        const number = Number(select.dataset.panel);
        chosen[number][select.dataset.axis] = Number(select.value);
        Plotly.react(panelElement(number), ...panelFigure(number), config);
      });
    });
    const resize = () => document.querySelectorAll(".js-plotly-plot").forEach((element) => Plotly.Plots.resize(element));
    window.matchMedia("print").addEventListener("change", resize);
  }

  async function draw() {
    for (const number of drawnPanels) {
      await Plotly.newPlot(panelElement(number), ...panelFigure(number), config);
      if (drawnPanels.length > 1) linkHover(number);
    }
    for (const [name, figure] of Object.entries(figures)) {
      await Plotly.newPlot(`figure-${name}`, figure.data, layoutWith(figure.layout), config);
    }
    listen();
    document.documentElement.dataset.drawn = document.querySelectorAll(".js-plotly-plot").length;
  }

  draw().catch((error) => {
    const message = document.getElementById("drawing-error");
    message.textContent = `The plots could not be drawn in this browser (${error.message}). The tables and the text are complete without them.`;
    message.hidden = false;
    document.documentElement.dataset.failed = String(error);
  });
})();
