(() => {
  const search = document.getElementById("search"), feature = document.getElementById("feature");
  const verdict = document.getElementById("verdict"), count = document.getElementById("count");
  const rows = [...document.querySelectorAll("#answers tbody tr")].map(row => ({
    row, text: row.textContent.toLowerCase(), verdict: row.dataset.verdict,
    features: new Set([...row.querySelectorAll("[data-feature]")].map(e => e.dataset.feature)),
  }));
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, text, features, verdict: own } of rows) {
      const fits = words.every(w => text.includes(w)) && (!feature.value || features.has(feature.value))
        && (!verdict || !verdict.value || own === verdict.value);
      row.hidden = !fits;
      shown += fits;
    }
    const all = rows.length.toLocaleString("en");
    count.textContent = shown === rows.length ? `${all} {{ noun }}` : `${shown.toLocaleString("en")} of ${all} {{ noun }}`;
  };
  search.addEventListener("input", filter);
  for (const box of [feature, verdict]) if (box) box.addEventListener("change", filter);
  filter();
})();
