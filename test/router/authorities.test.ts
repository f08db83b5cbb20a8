import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, it, vi } from 'vitest'
import * as certificates from '../../protocol/base/certificates.ts'
import { compileTable } from '../../router/compile.ts'
import { makeSecrets } from '../support/secrets.ts'

vi.mock('../../protocol/base/certificates.ts', { spy: true })

const folder = mkdtempSync(join(tmpdir(), 'sallyport-authorities-'))
afterEach(() => rmSync(folder, { recursive: true, force: true }))

it('a CA that many routes name is read once for each table', async () => {
  const file = join(folder, 'ca.pem')
  const { ca } = await makeSecrets()
  writeFileSync(file, ca)
  const read = vi.mocked(certificates.certificatesIn)
  read.mockClear()
  const route = (i: number, tls: object) => ({
    name: `${i}`,
    match: { path: `/${i}` },
    target: `https://s${i}.test`,
    tls,
  })
  const routes = Array.from({ length: 100 }, (_, i) => route(i, { ca: i % 2 === 0 ? file : ca }))
  const table = compileTable({ routes })
  expect(read).toHaveBeenCalledTimes(2)
  expect(new Set(table.routes.map(({ tls }) => tls?.key)).size).toBe(1)

  const { ca: other } = await makeSecrets()
  writeFileSync(file, other)
  const after = compileTable({ routes })
  expect(new Set(after.routes.map(({ tls }) => tls?.key)).size).toBe(2)
})

it('a CA that cannot be read is a problem of each route that names it', () => {
  const route = (name: string) => ({
    name,
    match: { path: `/${name}` },
    target: 'https://b',
    tls: { ca: `${folder}/none` },
  })
  expect(() => compileTable({ routes: [route('a'), route('b')] })).toThrow(/routes\[0\].*routes\[1\]/s)
})
