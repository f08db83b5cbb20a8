import { readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { expect, test } from 'vitest'
import { softwareName } from '../../../protocol/base/version.ts'

test('a bundle in CommonJS, which knows no folder, has no version', async () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  expect(softwareName()).toBe(`sallyport/${version}`)
  const bundled = stripTypeScriptTypes(readFileSync('protocol/base/version.ts', 'utf8')).replaceAll(
    'import.meta',
    '({})',
  )
  const made = await import(`data:text/javascript,${encodeURIComponent(bundled)}`)
  expect(made.softwareName()).toBe('sallyport/unknown')
})
