import { expect, test } from 'vitest'
import { checkout } from '../../scripts/docs.ts'

const DIRECT = /\b(?:readFile(?:Sync)?|createReadStream)\(/

/**
 * Files of short-lived commands, of the package, of the kernel; and a file that a command's user names may be a pipe.
 */
const EXEMPT = [
  /^cli\/(?:commands|config|demo)\//,
  /^cli\/(?:options|diag\/log-tail)\.ts$/,
  /^(?:protocol\/base\/(?:plain-file|version)|admin\/runtime-file|cli\/service\/compiled-code)\.ts$/,
]

test('whatever is read while we serve goes through `protocol/base/plain-file.ts`', () => {
  const sources = [...checkout()].filter(([file]) => /^(?:server|client|router|protocol|cli|admin)\/.*\.ts$/.test(file))
  const astray = sources.filter(([file, text]) => {
    const code = text.replaceAll(/^ *(?:\/?\*|\/\/).*$/gm, '')
    return DIRECT.test(code) && !EXEMPT.some(pattern => pattern.test(file))
  })
  expect(astray.map(([file]) => file)).toEqual([])
})
