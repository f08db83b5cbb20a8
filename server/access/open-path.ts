import { withoutQuery } from '../../protocol/base/path.ts'

/** A path that everybody may call: `/webhooks`, or `demo/webhooks` at one runtime. */
export const OPEN_PATH = /^(?:[a-z0-9-]{1,63})?\/[!-~]*$/

/** `demo` of `demo/webhooks`. Empty for all runtimes. */
export function openRuntime(open: string): string {
  return open.slice(0, open.indexOf('/'))
}

export function openPath(open: string): string {
  return open.slice(open.indexOf('/'))
}

/** Whether no upstream can read the path as a different one. */
export function readsOneWay(path: string): boolean {
  return !/[%;\\#]|\/\/|\/\.+(?:\/|$)/.test(withoutQuery(path))
}
