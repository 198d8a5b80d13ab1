// A user's program over what openapi-typescript made of openapi.yaml: it puts, pages, asks for many.
import createClient from "openapi-fetch";
import type { paths } from "./schema";

declare const process: { argv: string[] };
const client = createClient<paths>({ baseUrl: process.argv[2] });
const entry = { topic: "orders", queue_id: 0, size: 512, timestamp: 1700000000000 };

async function main() {
  const entries = [1, 2, 3].map((offset) => ({ ...entry, offset, keys: ["ts-1"] }));
  const put = await client.POST("/v1/entries", { body: { entries } });
  const offsets: (number | null)[] = [];
  let files = 0;
  let cursor: string | undefined;
  do {
    const { data, error } = await client.GET("/v1/entries", {
      params: { query: { topic: "orders", key: "ts-1", max_count: 1, cursor, explain: true } },
    });
    if (!data) throw new Error(error.detail);
    offsets.push(...data.entries.map((found) => found.offset));
    files += data.explain?.files_considered ?? 0;
    cursor = data.next_cursor ?? undefined;
  } while (cursor);
  const lookups = [{ topic: "orders", key: "ts-1" }, { message_id: "absent" }];
  const many = await client.POST("/v1/entries:batchGet", { body: { lookups } });
  if (typeof many.data !== "object") throw new Error("an Arrow stream was not asked for");
  const counts = many.data.answers.map((answer) => answer.entries.length);
  console.log(JSON.stringify([put.data?.accepted, offsets, files > 0, counts]));
}
main();
