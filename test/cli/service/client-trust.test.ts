import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { createAuthority, createClientCertificate } from '../../../certs/index.ts'
import type { ClientConfig } from '../../../cli/config/client.ts'
import { loadTrust, watchTrust } from '../../../cli/service/client-trust.ts'
import type { Tunnel } from '../../../client/index.ts'
import { noLogger } from '../../../protocol/base/log.ts'
import { recordingLogger } from '../../router/support.ts'
import { until } from '../../support/until.ts'

const folder = mkdtempSync(join(tmpdir(), 'sallyport-trust-'))
afterAll(() => rmSync(folder, { recursive: true }))

test('an empty list of authorities is none', async () => {
  expect(await loadTrust({ ca: [] } as unknown as ClientConfig)).toEqual({ ca: undefined, tls: undefined })
})

test('an authority that arrives while the client starts is trusted, too', async () => {
  const file = join(folder, 'ca.pem')
  const [first, next] = [await createAuthority(), await createAuthority()]
  writeFileSync(file, first.certificate)
  const config = { ca: [file] } as unknown as ClientConfig
  const loaded = await loadTrust(config)
  writeFileSync(file, next.certificate)
  const trusted: string[] = []
  const tunnel = { setTrust: ({ ca }: { ca: Buffer[] }) => trusted.push(...ca.map(String)) } as unknown as Tunnel
  const watching = watchTrust(config, loaded, tunnel, noLogger)
  await until(() => trusted.length > 0, 'the next authority is trusted')
  watching.close()
  expect(trusted).toEqual([next.certificate])
})

test('a pair that is renewed while the authority is missing is used once that is back', async () => {
  const [ca, cert, key] = ['again.pem', 'cert.pem', 'key.pem'].map(name => join(folder, name)) as [
    string,
    string,
    string,
  ]
  const authority = await createAuthority()
  writeFileSync(ca, authority.certificate)
  const renew = async () => {
    const pair = await createClientCertificate(authority, { runtime: 'demo' })
    writeFileSync(key, pair.key)
    writeFileSync(cert, pair.certificate)
    return pair.certificate
  }
  await renew()
  const config = { ca: [ca], 'tls.cert': cert, 'tls.key': key } as unknown as ClientConfig
  const loaded = await loadTrust(config)
  const { logger, lines } = recordingLogger()
  let used = loaded.tls!.cert
  const setTrust = ({ tls }: typeof loaded) => {
    used = tls!.cert
  }
  const watching = watchTrust(config, loaded, { setTrust } as unknown as Tunnel, logger)
  rmSync(ca)
  const renewed = await renew()
  await until(() => lines.some(line => /^error the new certificates cannot be used/.test(line)))
  writeFileSync(ca, authority.certificate)
  await until(() => used === renewed)
  watching.close()
})
