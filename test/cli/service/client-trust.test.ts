import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { createAuthority } from '../../../certs/index.ts'
import type { ClientConfig } from '../../../cli/config/client.ts'
import { loadTrust, readTrust, watchTrust } from '../../../cli/service/client-trust.ts'
import type { Tunnel } from '../../../client/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { until } from '../../support/until.ts'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-trust-'))
afterAll(() => rmSync(folder, { recursive: true }))

test('an authority that arrives while the client starts is trusted, too', async () => {
  const file = join(folder, 'ca.pem')
  const [first, next] = [await createAuthority(), await createAuthority()]
  writeFileSync(file, first.certificate)
  const config = { ca: [file] } as unknown as ClientConfig
  const texts = await readTrust(config)
  const loaded = await loadTrust(config)
  writeFileSync(file, next.certificate)
  const trusted: string[] = []
  const tunnel = { setTrust: ({ ca }: { ca: Buffer[] }) => trusted.push(...ca.map(String)) } as unknown as Tunnel
  const watching = watchTrust(config, texts, loaded, tunnel, noLogger)
  await until(() => trusted.length > 0, 'the next authority is trusted')
  watching.close()
  expect(trusted).toEqual([next.certificate])
})
