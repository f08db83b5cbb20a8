import type { Actions } from './actions.ts'

/** What the listeners show about a component. */
export interface AdminSource {
  /** Whether it can serve now. */
  ready(): boolean
  /** For `/status`: JSON values without secrets. */
  status(): unknown
  /** What else a caller with the token may see, by path: JSON values without secrets. */
  readonly views?: Readonly<Record<string, (query: URLSearchParams) => unknown>> | undefined
  /** What a caller with the token may do, by path. */
  readonly actions?: Actions | undefined
  metrics(): Promise<{ contentType: string; text: string }>
}

export interface Page {
  readonly status: number
  readonly contentType: string
  readonly text: string
}

export const TEXT = 'text/plain; charset=utf-8'

export const NOT_FOUND: Page = { status: 404, contentType: TEXT, text: 'not found\n' }

/** `/livez`, `/readyz`, `/metrics`; `undefined` for any other path. */
export async function publicPage(path: string, source: AdminSource): Promise<Page | undefined> {
  switch (path) {
    case '/livez':
      return { status: 200, contentType: TEXT, text: 'ok\n' }
    case '/readyz':
      return source.ready()
        ? { status: 200, contentType: TEXT, text: 'ok\n' }
        : { status: 503, contentType: TEXT, text: 'not ready\n' }
    case '/metrics': {
      const { contentType, text } = await source.metrics()
      return { status: 200, contentType, text }
    }
    default:
      return undefined
  }
}

/** `/status` and the component's own views; `undefined` for any other path. */
export async function protectedPage(
  path: string,
  source: AdminSource,
  query: URLSearchParams = new URLSearchParams(),
): Promise<Page | undefined> {
  const views: AdminSource['views'] = { ...source.views, '/status': () => source.status() }
  if (!Object.hasOwn(views, path)) return undefined
  const text = `${JSON.stringify(await views[path]!(query), undefined, 2)}\n`
  return { status: 200, contentType: 'application/json', text }
}
