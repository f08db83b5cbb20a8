import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'

const DIRECT = /\b(?:readFile(?:Sync)?|createReadStream)\(/

/** Files of a command that is over in a moment, of the package, of the kernel; and what the user of a command names is a pipe as well. */
const EXEMPT = [
  /^cli\/(?:commands|config|demo)\//,
  /^cli\/(?:options|diag\/log-tail)\.ts$/,
  /^(?:protocol\/base\/(?:plain-file|version)|admin\/runtime-file|cli\/service\/compiled-code)\.ts$/,
]

test('what is read while we serve goes through `protocol/base/plain-file.ts`', () => {
  const sources = [...checkout()].filter(([file]) => /^(?:server|client|router|protocol|cli|admin)\/.*\.ts$/.test(file))
  const astray = sources.filter(([file, text]) => {
    const code = text.replaceAll(/^ *(?:\/?\*|\/\/).*$/gm, '')
    return DIRECT.test(code) && !EXEMPT.some(pattern => pattern.test(file))
  })
  expect(astray.map(([file]) => file)).toEqual([])
})
