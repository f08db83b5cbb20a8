import { findEndpoints, issueCode } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT } from '../failure.ts'
import { hasSwitch } from '../options.ts'

/** `sallyport ui`: one link a component, each to be opened once. */
export const ui: Run = async (args, io) => {
  const endpoints = findEndpoints(args, io)
  const links = await Promise.all(
    endpoints.map(async endpoint => ({
      component: endpoint.component,
      url: `${endpoint.url}/#${await issueCode(endpoint)}`,
    })),
  )
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(links, undefined, 2)}\n`)
  else io.out(links.map(({ component = '', url }) => `${component.padEnd(8)}${url}\n`.trimStart()).join(''))
  return EXIT.ok
}
