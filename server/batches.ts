/** Works on many items, a batch at a time. Stops between two batches once `goesOn` is false. */
export async function inBatches<Item>(
  items: readonly Item[],
  size: number,
  work: (item: Item) => Promise<unknown>,
  goesOn: () => boolean = () => true,
): Promise<void> {
  for (let at = 0; at < items.length && goesOn(); at += size) {
    await Promise.all(items.slice(at, at + size).map(work))
  }
}
