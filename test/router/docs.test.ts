/** `docs/routes.md` and the schema say the same. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, it } from 'vitest'
import { parseRoutes } from '../../router/table-file.ts'
import { routeTableShape } from '../../router/table-schema.ts'
import { makeSecrets } from '../support/secrets.ts'

const doc = await readFile(resolve(import.meta.dirname, '../../docs/routes.md'), 'utf8')

it('the example is valid', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-docs-'))
  await writeFile(join(folder, 'internal-ca.pem'), (await makeSecrets()).ca)
  const yaml = /```yaml\n([\s\S]*?)```/.exec(doc)![1]!
  expect(parseRoutes(yaml, join(folder, 'routes.yaml')).routes).toHaveLength(5)
  await rm(folder, { recursive: true })
})

it('every key of the schema is described', () => {
  const route = routeTableShape.keys!.routes!.items!.keys!
  const keys = ['resolve']
  for (const [name, { keys: inner = {} }] of Object.entries(route)) {
    const grouped = ['match', 'rewrite', 'timeouts', 'limits', 'tls', 'retries', 'inbox'].includes(name)
    if (grouped) keys.push(...Object.keys(inner).map(key => `${name}.${key}`))
    else if (name !== 'allow') keys.push(name)
    if (!['cors', 'answer', 'verify'].includes(name)) continue
    expect(Object.keys(inner).length).toBeGreaterThan(2)
    for (const key of Object.keys(inner)) expect(doc, `${name}: ${key}`).toContain(`\`${key}\``)
  }
  expect(keys.length).toBeGreaterThan(20)
  for (const key of keys) expect(doc, key).toContain(`\n| \`${key}\` |`)
})
