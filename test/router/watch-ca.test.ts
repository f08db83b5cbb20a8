/** The CA files that a routes file names are watched with it, in any folder. */
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { RouteTable } from '../../router/index.ts'
import { parseRoutes } from '../../router/table-file.ts'
import { type RoutesWatcher, watchRoutes } from '../../router/watch.ts'
import { makeSecrets } from '../support/secrets.ts'

let folder: string
let file: string
let ca: string
let watcher: RoutesWatcher | undefined
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-watch-ca-'))
  file = join(folder, 'routes.yaml')
  ca = (await makeSecrets()).ca
  mkdirSync(join(folder, 'tls'))
  writeFileSync(join(folder, 'tls/ca.pem'), ca)
  writeFileSync(file, routes('a', 'tls/ca.pem'))
})
afterEach(() => {
  watcher?.close()
  rmSync(folder, { recursive: true })
})

function routes(name: string, caFile: string): string {
  return `routes: [{ name: ${name}, match: {}, target: "https://b", tls: { ca: ${caFile} } }]`
}

/** As an administrator does it: whole or not at all. */
function put(name: string, text: string): void {
  writeFileSync(join(folder, `${name}.new`), text)
  renameSync(join(folder, `${name}.new`), join(folder, name))
}

/** What is reported, in order; `next` waits for the next report. */
function watch() {
  const reported: string[] = []
  let wake: (() => void) | undefined
  const report = (what: string) => {
    reported.push(what)
    wake?.()
  }
  const text = readFileSync(file, 'utf8')
  watcher = watchRoutes(text, parseRoutes(text, file), {
    file,
    parse: parseRoutes,
    onTable: (table: RouteTable) => report(table.routes[0]!.name),
    onError: error => report(/\(ENOENT\)|no PEM/.exec(error.message)?.[0] ?? error.message),
  })
  const next = async () => {
    const before = reported.length
    if (before === taken) await new Promise<void>(resolve => (wake = resolve))
    return reported[taken++]
  }
  let taken = 0
  return { reported, next }
}

it('a rotated CA takes effect', async () => {
  const { next } = watch()
  put('tls/ca.pem', `${ca}\n`)
  expect(await next()).toBe('a')
})

it('a table refused because its CA file is missing takes effect when the file appears', async () => {
  const { next } = watch()
  put('routes.yaml', routes('b', 'tls/new.pem'))
  expect(await next()).toBe('(ENOENT)')
  put('tls/new.pem', ca)
  expect(await next()).toBe('b')
})

it('a table refused because its CA file is invalid takes effect when the file is fixed', async () => {
  put('tls/new.pem', 'nothing')
  const { next } = watch()
  put('routes.yaml', routes('b', 'tls/new.pem'))
  expect(await next()).toBe('no PEM')
  put('tls/new.pem', ca)
  expect(await next()).toBe('b')
})

it('a CA file that disappears and returns unchanged is reported each time', async () => {
  const { next } = watch()
  rmSync(join(folder, 'tls/ca.pem'))
  expect(await next()).toBe('(ENOENT)')
  put('tls/ca.pem', ca)
  expect(await next()).toBe('a')
})

it('rewriting a file unchanged does nothing', async () => {
  const { reported, next } = watch()
  put('tls/ca.pem', ca)
  put('routes.yaml', routes('a', 'tls/ca.pem'))
  await new Promise(resolve => setImmediate(resolve))
  put('routes.yaml', routes('c', 'tls/ca.pem'))
  expect(await next()).toBe('c')
  expect(reported).toEqual(['c'])
})
