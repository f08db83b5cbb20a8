/** Files that are missing while something else in their folder keeps changing: each of those changes has them read again. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { loadTrust, watchTrust } from '../../../cli/service/client-trust.ts'
import type { Tunnel } from '../../../client/index.ts'
import { type Logger, noLogger } from '../../../protocol/base/log.ts'
import { watchFiles } from '../../../protocol/base/watch-files.ts'
import { parseRoutes } from '../../../router/table-file.ts'
import { watchRoutes } from '../../../router/watch.ts'
import { RevocationFile } from '../../../server/auth/revocation-file.ts'
import { InboxMac } from '../../../server/inbox/mac.ts'
import { loadTls, TlsKeeper } from '../../../server/tls.ts'
import { makeWorld } from '../../server/fixture.ts'
import { eventually } from '../../support/until.ts'

let version = 'a'
vi.mock('../../../protocol/base/watch-files.ts', () => {
  const watch = {
    close() {},
    get version() {
      return version
    },
  }
  return { watchFiles: vi.fn(() => watch) }
})

let folder: string
const at = (name: string) => join(folder, name)
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-missing-'))
  const { server } = await makeWorld()
  writeFileSync(at('cert.pem'), server.certificate)
  writeFileSync(at('key.pem'), server.key)
  writeFileSync(at('revoked.json'), '')
  writeFileSync(at('secrets'), 'ab'.repeat(32))
  writeFileSync(at('routes.yaml'), ROUTES)
})
afterEach(() => {
  vi.mocked(watchFiles).mockClear()
  rmSync(folder, { recursive: true })
})

const ROUTES = 'routes: [{ name: a, match: { path: / }, target: "http://127.0.0.1:9" }]'

test.each<[string, (logger: Logger) => unknown]>([
  [
    'key.pem',
    async logger => {
      const files = { cert: { file: at('cert.pem') }, key: { file: at('key.pem') } }
      return new TlsKeeper(files, await loadTls(files), () => {}, logger)
    },
  ],
  [
    'key.pem',
    async logger => {
      const config = { 'tls.cert': at('cert.pem'), 'tls.key': at('key.pem') } as Parameters<typeof loadTrust>[0]
      watchTrust(config, await loadTrust(config), {} as Tunnel, logger)
    },
  ],
  ['revoked.json', logger => new RevocationFile(at('revoked.json'), logger, () => {}, Date.now).start()],
  ['secrets', logger => InboxMac.open({ file: at('secrets'), optional: false }, logger)],
  [
    'routes.yaml',
    logger => {
      const file = at('routes.yaml')
      return watchRoutes(ROUTES, parseRoutes(ROUTES, file), { file, parse: parseRoutes, onTable() {}, logger })
    },
  ],
])(
  '%s is reported once for each time that it goes missing, and once for each change of the others',
  async (name, open) => {
    const error = vi.fn()
    await open({ ...noLogger, error })
    const change = vi.mocked(watchFiles).mock.lastCall![2]
    const changes = async () => {
      for (let i = 0; i < 5; i++) {
        change()
        await pause(20)
      }
    }
    for (const times of [1, 2]) {
      renameSync(at(name), at('elsewhere'))
      await changes()
      await eventually(() => expect(error).toHaveBeenCalledTimes(2 * times - 1))
      // Another file is there, which does not help.
      version += 'b'
      await changes()
      await eventually(() => expect(error).toHaveBeenCalledTimes(2 * times))
      renameSync(at('elsewhere'), at(name))
      await changes()
    }
    expect(error).toHaveBeenCalledTimes(4)
  },
)
