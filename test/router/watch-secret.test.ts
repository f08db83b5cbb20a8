/** A secret that another process changes while the table that names it is compiled. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { parseRoutes } from '../../router/table-file.ts'
import { watchRoutes } from '../../router/watch.ts'
import { eventually } from '../support/until.ts'

it('a secret that changes after it was compiled is read again', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-secret-'))
  const secret = join(folder, 'secret')
  const file = join(folder, 'routes.yaml')
  const verify = '{ scheme: github, secrets: [{ file: secret }] }'
  const text = `routes: [{ name: hooks, match: {}, target: "http://a", verify: ${verify} }]\n`
  writeFileSync(secret, 'the first')
  writeFileSync(file, text)
  let compiled = 0
  const parse = (text: string, file: string) => {
    const table = parseRoutes(text, file)
    if (++compiled === 1) writeFileSync(secret, 'the third')
    return table
  }
  const watcher = watchRoutes(text, parseRoutes(text, file), { file, parse, onTable: () => {} })
  writeFileSync(secret, 'the second')
  await watcher.reload()
  await eventually(() => expect(compiled).toBeGreaterThan(1))
  watcher.close()
  rmSync(folder, { recursive: true })
})
