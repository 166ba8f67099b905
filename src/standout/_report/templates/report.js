// Draws the figures of the report. All text in the data has been made safe for plotly's labels beforehand.
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
  const chosen = scores.views.map(() => ({ x: 0, y: 1 }));
  const webgl = (() => {
    try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; }
  })();

  function layoutWith(own) {
    return {
      font, hoverlabel, hovermode: "closest", dragmode: "zoom", margin: { l: 56, r: 12, t: 28, b: 48 },
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: false,
      legend: { orientation: "h", y: -0.25, yanchor: "top" },
      ...own, xaxis: { ...axis, ...own.xaxis, title: { ...axis.title, ...own.xaxis.title } },
      yaxis: { ...axis, ...own.yaxis, title: { ...axis.title, ...own.yaxis.title } },
    };
  }

  function trace(set, place, coordinates, view, x, y) {
    const who = set.ids ? "<b>%{customdata}</b>" : "<b>row %{customdata}</b>";
    const label = set.texts ? "%{text}" : set.values ? "%{marker.color:.4~g}" : set.label;
    const axes = view.strips ? "%{x:.3~g}" : "%{x:.3~g}, %{y:.3~g}";
    return {
      type: view.webgl && webgl ? "scattergl" : "scatter", mode: "markers", name: set.label,
      x: coordinates[x], y: coordinates[y], customdata: set.ids || set.rows, text: set.texts,
      visible: !hidden.has(place), hovertemplate: `${who}<br>${label}<br>${axes}<extra></extra>`,
      marker: {
        symbol: set.symbol, size: set.size, opacity: set.opacity,
        ...(set.values ? { color: set.values, colorscale: "Viridis" } : { color: set.color }),
        line: { width: set.symbol.includes("open") ? 1.2 : 0, color: set.color || undefined },
      },
    };
  }

  function viewFigure(number) {
    const view = scores.views[number];
    const { x, y } = chosen[number];
    const data = scores.order.map((place) => trace(scores.sets[place], place, view.coordinates[place], view, x, y));
    const lanes = scores.sets.length - 1;
    const yaxis = view.strips
      ? { tickvals: scores.sets.map((_, place) => lanes - place), ticktext: scores.sets.map((set) => set.short),
          range: [-0.6, lanes + 0.6], showgrid: false, zeroline: false }
      : { title: { text: view.axes[y] } };
    return [data, layoutWith({ xaxis: { title: { text: view.axes[x] } }, yaxis })];
  }

  const viewElement = (number) => document.getElementById(`view-${number}`);
  const drawnViews = scores.views.map((_, number) => number).filter((number) => viewElement(number));

  // The same row in the other views: all views hold the same sets in the same order.
  function linkHover(number) {
    const others = drawnViews.filter((other) => other !== number).map(viewElement);
    viewElement(number).on("plotly_hover", ({ points: [{ curveNumber, pointNumber }] }) => {
      for (const element of others) {
        const { type, x, y } = element._fullData[curveNumber];
        // WebGL traces are searched by place, the others by number.
        const same = type === "scattergl" ? { xval: x[pointNumber], yval: y[pointNumber] } : { pointNumber };
        Plotly.Fx.hover(element, [{ curveNumber, ...same }]);
      }
    });
    viewElement(number).on("plotly_unhover", () => others.forEach((element) => Plotly.Fx.unhover(element)));
  }

  function showSets() {
    document.querySelectorAll("[data-set]").forEach((button) => {
      button.setAttribute("aria-pressed", String(!hidden.has(Number(button.dataset.set))));
    });
    const visible = scores.order.map((place) => !hidden.has(place));
    return Promise.all(drawnViews.map((number) => Plotly.restyle(viewElement(number), { visible })));
  }

  function listen() {
    document.querySelectorAll("[data-set]").forEach((button) => {
      const place = Number(button.dataset.set);
      button.addEventListener("click", () => {
        if (!hidden.delete(place)) hidden.add(place);
        showSets();
      });
      button.addEventListener("dblclick", () => {
        const alone = hidden.size === scores.sets.length - 1 && !hidden.has(place);
        scores.sets.forEach((_, other) => (alone || other === place ? hidden.delete(other) : hidden.add(other)));
        showSets();
      });
    });
    document.querySelectorAll("select[data-view]").forEach((select) => {
      select.addEventListener("change", () => {
        const number = Number(select.dataset.view);
        chosen[number][select.dataset.axis] = Number(select.value);
        Plotly.react(viewElement(number), ...viewFigure(number), config);
      });
    });
    const plots = () => document.querySelectorAll(".js-plotly-plot").forEach((element) => Plotly.Plots.resize(element));
    window.matchMedia("print").addEventListener("change", plots);
  }

  async function draw() {
    for (const number of drawnViews) {
      await Plotly.newPlot(viewElement(number), ...viewFigure(number), config);
      if (drawnViews.length > 1) linkHover(number);
    }
    for (const [name, figure] of Object.entries(figures)) {
      await Plotly.newPlot(`figure-${name}`, figure.data, layoutWith(figure.layout), config);
    }
    listen();
    document.documentElement.dataset.drawn = document.querySelectorAll(".js-plotly-plot").length;
  }

  draw().catch((error) => {
    const trouble = document.getElementById("trouble");
    trouble.textContent = `The plots could not be drawn in this browser (${error.message}). All tables and texts are complete without them.`;
    trouble.hidden = false;
    document.documentElement.dataset.failed = String(error);
  });
})();
