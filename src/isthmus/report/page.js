// Values under the pointer: in each line chart, every line's nearest point.
const tip = document.getElementById("tip");

for (const chart of document.querySelectorAll("svg.lines")) {
  const lines = [...chart.querySelectorAll(".line")].map((group) => ({
    group,
    name: group.dataset.name,
    points: JSON.parse(group.dataset.points),
    dot: group.querySelector(".at"),
  }));

  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    tip.replaceChildren();
    for (const { group, name, points, dot } of lines) {
      const [px, py, where, value] = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      dot.classList.add("shown");
      dot.setAttribute("cx", px);
      dot.setAttribute("cy", py);
      const swatch = document.createElement("i");
      swatch.className = "swatch " + group.getAttribute("class").replace("line ", "");
      const text = document.createElement("span");
      text.textContent = `${value} at ${where}`;
      const label = document.createElement("b");
      label.textContent = name;
      tip.append(swatch, label, text);
    }
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${Math.max(event.clientY - tip.offsetHeight - 12, 8)}px`;
  });

  chart.addEventListener("pointerleave", () => {
    tip.hidden = true;
    for (const { dot } of lines) dot.classList.remove("shown");
  });
}
