// Spark queries that report their progress: penstock's data source commits it as a group named spark-<query>.

import { h } from "../dom.js";
import { empty, pageHead } from "../parts.js";
import { groupTable } from "./groups.js";

export async function render(context) {
  const table = groupTable(context, {
    label: "queries", first: "Query", parameters: () => ({ spark: true }),
    empty: (search) => (search ? empty("No query matches", `Nothing contains “${search}”.`)
      : empty("No query reports progress", "Streaming queries that read with format(\"penstock\") show up here while they run, as groups named spark-<query name>. Give a query a name with queryName(…).")),
  });
  await table.load(false);
  return [pageHead("Spark queries"), h("div", { class: "stack" },
    h("p", { class: "soft" }, "Lag and progress as each query commits them; its checkpoint stays the truth."), table.element)];
}
