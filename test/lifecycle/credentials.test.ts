// @module-tag slow
import { short } from '../support/needs.ts'
import { testRows } from './row.ts'

testRows('token')
if (!short) testRows('keys', 'certificate', 'routes')
