/** A request's path without its query, which may hold secrets. */
export function withoutQuery(path: string): string {
  const query = path.indexOf('?')
  return query < 0 ? path : path.slice(0, query)
}

/** A URL for logs, without its query and credentials, which may be secret. */
export function urlForLogs(url: string | URL): string {
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}
