/** A request's path without its query, which may hold secrets. */
export function withoutQuery(path: string): string {
  const query = path.indexOf('?')
  return query < 0 ? path : path.slice(0, query)
}
