// What is wrong with a page for those who cannot see it, or not well. Gives a list of sentences.
() => {
  const wrong = [];
  const isSeen = (element) => element.checkVisibility({ checkOpacity: false, checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const describe = (element) => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${(element.textContent ?? "").trim().slice(0, 40)}`;

  const nameOf = (element) => {
    const labelled = element.getAttribute("aria-labelledby");
    if (labelled) return labelled.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    const label = element.getAttribute("aria-label") ?? [...(element.labels ?? [])].map((one) => one.textContent).join(" ");
    return (label || element.textContent || element.getAttribute("title") || "").trim();
  };
  for (const element of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0'], dialog, svg[role=img]")) {
    if (!isSeen(element) || element.closest("[aria-hidden=true]")) continue;
    if (element.matches("select, input, textarea") ? !nameOf(element).replace(/^\s*$/, "") || (element.matches("select") && nameOf(element) === element.textContent.trim() && !element.labels.length && !element.hasAttribute("aria-label")) : !nameOf(element)) wrong.push(`no name: ${describe(element)}`);
  }
  if (document.querySelectorAll("main h1").length !== 1) wrong.push("not exactly one h1 in main");
  for (const selector of ["header", "nav[aria-label=Main]", "main", "a.skip", "[aria-live]"]) if (!document.querySelector(selector)) wrong.push(`no ${selector}`);
  for (const table of document.querySelectorAll("table")) if (isSeen(table) && !table.caption && !table.closest("[aria-label]")) wrong.push(`table without a name: ${describe(table)}`);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => wrong.push(`id twice: ${id}`));

  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
  };
  const over = (top, under) => [0, 1, 2].map((one) => top[one] * top[3] + under[one] * (1 - top[3])).concat(1);
  const backdrop = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(element) || !isSeen(element) || element.closest("noscript, .visually-hidden, .skip, :disabled, .loading, option")) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const under = backdrop(element);
    const isSvg = element instanceof SVGElement;
    const above = over(parse(isSvg ? style.fill : style.color), under);
    const [a, b] = [light(above), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ${describe(element)}`);
  }
  return wrong;
}
